// What a run measures of itself: counts, rates, peaks of memory, the time left. Evaluations are kept apart, so that
// they enter neither the rates nor the peaks of training.
//
// Not for: losses (train_step.h, evaluation.h). Thread rule: one owner.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>

#include "data/batch.h"
#include "train/evaluation.h"
#include "train/metrics.h"

namespace tempo::train {

/// What a run consists of, for the time left.
struct RunLength {
  std::int64_t steps = 0;
  EvaluationPlan evaluations;
  std::int64_t validation_sequences = 0;
  double closing_seconds = 0;  ///< expected after the last step: the export
};

class RunMeter {
 public:
  using Clock = std::chrono::steady_clock;

  RunMeter(c10::Device device, const RunLength& length) : device_(device), length_(length) {}

  /// The run goes on after `steps` steps with these totals. Before start().
  void resume(std::int64_t steps, std::int64_t sequences, std::int64_t tokens, std::int64_t real_tokens);

  std::int64_t sequences() const { return sequences_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t real_tokens() const { return real_tokens_; }

  /// Training begins: times and peaks count from here. Times are arguments so that tests need not wait.
  void start(Clock::time_point now = Clock::now());

  void count(const data::Batch& batch);

  /// While it lives, the step waits for data.
  class Wait {
   public:
    explicit Wait(RunMeter& meter) : meter_(meter) {}
    ~Wait() { meter_.waited_seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    RunMeter& meter_;
    Clock::time_point start_ = Clock::now();
  };

  void end_step(Clock::time_point now = Clock::now());

  /// Around an evaluation, between two steps. Waits for the device first, so that each side pays for its own work.
  void begin_evaluation();
  void begin_evaluation(Clock::time_point now);
  void end_evaluation(Clock::time_point now = Clock::now());

  /// Fills in what is measured, for a record after the step that ended last; the next record's interval begins.
  void measure(TrainRecord& record, Clock::time_point now = Clock::now());

  /// Remaining steps and evaluations at their mean times, and the end; NaN before the first step has ended. Means follow the recent
  /// ones. The first step is slower than others (memory is touched for the first time): it counts only until there is another.
  /// `part` is the share of the next step that is done.
  double seconds_left(double part = 0) const;

 private:
  double expected_evaluation_seconds() const;

  c10::Device device_;
  RunLength length_;

  std::int64_t steps_before_ = 0;  ///< of earlier processes, as the next one
  std::int64_t sequences_before_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t real_tokens_ = 0;
  std::int64_t steps_ = 0;  ///< of this process
  Clock::time_point step_start_;
  double mean_step_seconds_ = 0;

  std::int64_t evaluations_ = 0;
  Clock::time_point evaluation_start_;
  double mean_evaluation_seconds_ = 0;
  std::int64_t held_peak_bytes_ = 0;  ///< of the part of the interval that lies before an evaluation
  std::int64_t held_peak_reserved_bytes_ = 0;

  double waited_seconds_ = 0;  ///< since the record before
  std::int64_t steps_at_record_ = 0;
  std::int64_t sequences_at_record_ = 0;
  std::int64_t tokens_at_record_ = 0;
  Clock::time_point record_time_;
};

}  // namespace tempo::train
