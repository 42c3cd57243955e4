// Checkpoints: a folder that holds everything that, with the configuration and the data, decides the next step.
//
//   config.json, tokenizer files   as in a model folder
//   model.safetensors              weights, with the vocabulary as padded in training
//   optimizer.safetensors          moment.NAME and variance.NAME; not there when only weights were saved
//   state.json                     counters, and the SHA-256 of every tensor and header above
//   COMPLETE                       the SHA-256 of every other file; written last
// Written beside its name, flushed, renamed: a folder with its name is whole, or was damaged later, which is found.
//
// Not for: when to save (run_loop.h). Thread rule: CheckpointSaver by one thread; it writes on one of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/hf_weights.h"
#include "model/model.h"
#include "train/optimizer.h"

namespace tempo::train {

inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Counters of a run after `step` steps. All else that is drawn or chosen is a function of them and of the configuration.
struct TrainState {
  std::int64_t step = 0;
  std::int64_t optimizer_updates = 0;
  std::int64_t sequences = 0;         ///< totals since step 1
  std::int64_t tokens = 0;            ///< with padding
  std::int64_t real_tokens = 0;       ///< without
  std::int64_t examples = 0;          ///< in the training set: another number would be another order
  std::int64_t skipped_steps = 0;     ///< whose loss or gradient was not finite
  std::int64_t skipped_in_a_row = 0;  ///< the last ones
};

/// What a checkpoint is written from.
struct CheckpointContent {
  model::ModelConfig model;
  TrainState state;
  NamedTensors weights;
  NamedTensors optimizer;           ///< none: weights only
  model::TokenizerFiles tokenizer;  ///< files that travel along
};

/// Writes a checkpoint. The folder must not exist; it appears when it is whole and on the disk. Throws c10::Error naming the
/// file and errno.
void write_checkpoint(const std::filesystem::path& folder, const CheckpointContent& content);

/// Reads every byte of a checkpoint and compares it with its hash. Throws c10::ValueError naming the file, and the tensor, that
/// is missing or damaged.
TrainState verify_checkpoint(const std::filesystem::path& folder);

/// Copies a verified checkpoint's weights into the model. Throws c10::ValueError where it is one of another model.
void load_weights_as_saved(const std::filesystem::path& folder, model::Model& model);

/// Copies a verified checkpoint's moments into the optimizer, and how many updates have made them. Throws c10::ValueError where it
/// is one of another model or holds no optimizer.
void load_optimizer(const std::filesystem::path& folder, const TrainState& state, Optimizer& optimizer);

/// The folders in `checkpoints` whose names are those of checkpoints, newest first. Throws c10::Error where it cannot be read.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& checkpoints);

struct IntactCheckpoint {
  std::filesystem::path folder;
  TrainState state;
};

/// The newest checkpoint that verifies; `on_damaged` hears of each that does not. Nothing where there is none.
std::optional<IntactCheckpoint> newest_intact(
    const std::filesystem::path& checkpoints,
    const std::function<void(const std::filesystem::path&, const std::string&)>& on_damaged);

/// Saves a run's state from time to time: copies it and returns, while a thread writes the copy.
class CheckpointSaver {
 public:
  /// `model` and `optimizer` must outlive it. Buffers for the copy lie in plain host memory, outside the counted allocator, and
  /// are touched here. `keep` newest checkpoints stay; 0: all. `flush_records` is called by the writing thread before a checkpoint
  /// is complete: what the run has recorded until then must not be lost while the checkpoint stays. Removes what killed writers
  /// left in `checkpoints`.
  CheckpointSaver(std::filesystem::path checkpoints, std::int64_t keep, const model::Model& model,
                  const Optimizer& optimizer, model::TokenizerFiles tokenizer, std::function<void()> flush_records);

  /// Waits for the writing thread; a failure that nobody asked for is lost.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Copies weights, moments and `state`; first waits for a save that is still being written. Throws what that one failed with.
  void save(TrainState state);

  /// Throws what a save has failed with, as soon as that is known; does not wait.
  void check() {
    if (has_failed_) finish();
  }

  /// Waits until all is on the disk. Throws what the last save failed with.
  void finish();

 private:
  void write(const std::filesystem::path& folder);

  std::filesystem::path checkpoints_;
  std::int64_t keep_;
  const model::Model& model_;
  const Optimizer& optimizer_;
  std::function<void()> flush_records_;
  std::vector<std::vector<float>> buffers_;
  CheckpointContent content_;  ///< its tensors are views of buffers_
  std::thread thread_;
  std::exception_ptr failure_;
  std::atomic<bool> has_failed_ = false;  ///< failure_ may be read
};

}  // namespace tempo::train
