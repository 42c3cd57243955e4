// The steps of a run: trains, evaluates, records and saves, until the last step or until it is asked to end.
//
// Not for: what comes before and after (trainer.h). Thread rule: one owner; reading ahead and writing checkpoints have threads of
// their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "data/prefetcher.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/progress_display.h"
#include "train/run_control.h"
#include "train/run_data.h"
#include "train/run_dir.h"
#include "train/run_meter.h"
#include "train/train_step.h"

namespace tempo::train {

/// What a run works with; the references outlive the loop.
struct RunParts {
  RunData& data;
  model::Model& model;
  Optimizer& optimizer;
  c10::Device device;
  RunDirectory& directory;
  model::TokenizerFiles tokenizer;  ///< files that travel along with weights
};

/// Where it starts: after `state.step` steps, with model and optimizer as they were then.
struct RunStart {
  TrainState state;
  bool is_saved = false;          ///< a checkpoint of `state` is there
  bool lacks_evaluation = false;  ///< one is due after `state.step` that was cut off
};

class RunLoop {
 public:
  RunLoop(const RunConfig& config, const RunParts& parts, const RunStart& start);

  /// Trains until all steps are done (true) or somebody asks for the end. All that is done is saved then. Throws c10::Error where
  /// too many steps in a row were skipped, or a file cannot be written.
  bool run();

  std::int64_t steps_done() const { return state_.step; }
  const char* stop_reason() { return control_.stop_reason(); }

 private:
  void train();
  void step(const Schedule& schedule, data::Prefetcher& batches);
  StepResult compute(const StepPlan& plan, data::Prefetcher& batches);
  void count_skips(const StepPlan& plan, const StepResult& result);
  [[noreturn]] void end_for_skips(const StepResult& result);
  std::optional<ValidationRecord> evaluation(std::int64_t step);
  TrainRecord measured(const StepPlan& plan, std::int64_t epoch, const StepResult& result);
  void show(std::int64_t step, double part = 0, const std::string& besides = "") const;
  void save();
  void tell_norms();

  const RunConfig& config_;
  RunData& data_;
  model::Model& model_;
  c10::Device device_;
  TrainState state_;
  bool lacks_evaluation_;
  RunControl control_;
  MetricsWriter metrics_;
  TrainStep step_;
  std::unique_ptr<ProgressDisplay> display_;  ///< ends after the saver, whose thread logs
  CheckpointSaver saver_;
  std::int64_t saved_step_;  ///< -1: none
  RunLength length_;
  RunMeter meter_;
  TrainRecord last_record_;  ///< step 0: none yet
  std::set<std::string> told_norms_;
};

}  // namespace tempo::train
