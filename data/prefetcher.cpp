#include "data/prefetcher.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace tempo::data {

Prefetcher::Prefetcher(Dataset& dataset, const BatchPlan& plan) : dataset_(dataset), plan_(plan) {
  thread_ = std::thread([this] {
    try {
      read_ahead();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Prefetcher::read_ahead() {
  for (std::int64_t step = plan_.first_step; step <= plan_.last_step; ++step) {
    const GlobalBatch examples = dataset_.global_batch_at(step, plan_.global_batch);
    const StepExamples whole{examples, dataset_.count_labels(examples)};
    for (std::int64_t offset = 0; offset < examples.count; offset += plan_.micro_batch) {
      put({whole, dataset_.read(examples, offset, std::min(plan_.micro_batch, examples.count - offset))});
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
    }
  }
}

void Prefetcher::put(Piece piece) {
  const std::int64_t bytes = piece.batch.num_bytes();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_stopping_ || pieces_.empty() || num_bytes_ + bytes <= kMaxBytes; });
  num_bytes_ += bytes;
  pieces_.push_back(std::move(piece));
  changed_.notify_all();
}

void Prefetcher::wait_for_piece(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !pieces_.empty() || failure_; });
  if (pieces_.empty()) std::rethrow_exception(failure_);
}

StepExamples Prefetcher::next_step() {
  TORCH_CHECK(examples_left_ == 0, "the step before has ", examples_left_, " examples left");
  std::unique_lock lock(mutex_);
  wait_for_piece(lock);
  examples_left_ = pieces_.front().step.examples.count;
  return pieces_.front().step;
}

std::optional<HostBatch> Prefetcher::next_batch() {
  if (examples_left_ == 0) return std::nullopt;
  std::unique_lock lock(mutex_);
  wait_for_piece(lock);
  HostBatch batch = std::move(pieces_.front().batch);
  pieces_.pop_front();
  num_bytes_ -= batch.num_bytes();
  examples_left_ -= static_cast<std::int64_t>(batch.sequence_ids.size());
  lock.unlock();
  changed_.notify_all();
  return batch;
}

}  // namespace tempo::data
