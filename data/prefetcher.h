// The micro-batches of a run, one after another, read ahead by a thread of its own while the device computes.
//
// It reads ahead as far as kMaxBytes of batches, so that the change to the next shard, which takes as long as reading the whole
// of it, is hidden behind many steps. Batches wait in plain host memory.
// Not for: held-out data (train/evaluation.h). Thread rule: one consumer; nobody else uses the data set meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "data/dataset.h"

namespace tempo::data {

/// Which batches: those of steps first_step to last_step (from 1), each of `global_batch` examples in pieces of `micro_batch`.
struct BatchPlan {
  std::int64_t first_step = 1;
  std::int64_t last_step = 0;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
};

/// What one step consumes.
struct StepExamples {
  GlobalBatch examples;
  std::int64_t num_labels = 0;  ///< of all its micro-batches
};

class Prefetcher {
 public:
  static constexpr std::int64_t kMaxBytes = 64 << 20;

  /// Starts reading. `dataset` must outlive it.
  Prefetcher(Dataset& dataset, const BatchPlan& plan);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Goes on to the next step, the first time to the first; the micro-batches of the one before must have been taken. Waits where
  /// nothing is read yet. Throws what reading failed with.
  StepExamples next_step();

  /// The step's next micro-batch, and nothing after its last. Waits and throws likewise.
  std::optional<HostBatch> next_batch();

 private:
  struct Piece {
    StepExamples step;
    HostBatch batch;
  };

  void read_ahead();
  void put(Piece piece);
  void wait_for_piece(std::unique_lock<std::mutex>& lock);

  Dataset& dataset_;
  BatchPlan plan_;
  std::int64_t examples_left_ = 0;  ///< of the consumer's step

  std::mutex mutex_;  ///< of all below
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::int64_t num_bytes_ = 0;
  bool is_stopping_ = false;
  std::exception_ptr failure_;  ///< after which no piece comes
  std::thread thread_;
};

}  // namespace tempo::data
