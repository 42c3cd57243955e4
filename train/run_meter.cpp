#include "train/run_meter.h"

#include <algorithm>
#include <limits>

#include "train/device.h"
#include "train/memory_tracker.h"

namespace tempo::train {
namespace {

// A forward pass costs a third of a step: the backward pass has two products for each of its own.
constexpr double kForwardShare = 1.0 / 3;

double seconds_between(RunMeter::Clock::time_point from, RunMeter::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// The mean of this many values, then one that forgets: machines are shared, and their speed changes.
constexpr std::int64_t kRemembered = 50;

/// Moves `mean` for its value number `count`; a value number 0 stands until there is another.
void follow(double& mean, double value, std::int64_t count) {
  mean += (value - mean) / static_cast<double>(std::clamp<std::int64_t>(count, 1, kRemembered));
}

}  // namespace

void RunMeter::resume(std::int64_t steps, std::int64_t sequences, std::int64_t tokens, std::int64_t real_tokens) {
  steps_before_ = steps;
  sequences_before_ = sequences_ = sequences_at_record_ = sequences;
  tokens_ = tokens_at_record_ = tokens;
  real_tokens_ = real_tokens;
}

void RunMeter::start(Clock::time_point now) {
  step_start_ = record_time_ = now;
  reset_peak(device_);
}

void RunMeter::count(const data::Batch& batch) {
  sequences_ += batch.num_sequences;
  tokens_ += batch.num_tokens;
  real_tokens_ += batch.num_real_tokens;
}

void RunMeter::end_step(Clock::time_point now) {
  ++steps_;
  follow(mean_step_seconds_, seconds_between(step_start_, now), steps_ - 1);
  step_start_ = now;
}

void RunMeter::begin_evaluation() {
  wait_for(device_);
  begin_evaluation(Clock::now());
}

void RunMeter::begin_evaluation(Clock::time_point now) {
  const MemoryUse memory = memory_use(device_);
  held_peak_bytes_ = std::max(held_peak_bytes_, memory.peak_bytes);
  held_peak_reserved_bytes_ = std::max(held_peak_reserved_bytes_, memory.peak_reserved_bytes);
  evaluation_start_ = now;
}

void RunMeter::end_evaluation(Clock::time_point now) {
  ++evaluations_;
  follow(mean_evaluation_seconds_, seconds_between(evaluation_start_, now), evaluations_);
  // The training's clocks stood still meanwhile.
  step_start_ += now - evaluation_start_;
  record_time_ += now - evaluation_start_;
  reset_peak(device_);
}

void RunMeter::measure(TrainRecord& record, Clock::time_point now) {
  const double seconds = seconds_between(record_time_, now);
  record.sequences = sequences_;
  record.tokens = tokens_;
  record.real_tokens = real_tokens_;
  record.step_ms = seconds * 1000 / static_cast<double>(steps_ - steps_at_record_);
  record.data_ms = waited_seconds_ * 1000 / static_cast<double>(steps_ - steps_at_record_);
  record.sequences_per_s = static_cast<double>(sequences_ - sequences_at_record_) / seconds;
  record.tokens_per_s = static_cast<double>(tokens_ - tokens_at_record_) / seconds;
  const MemoryUse memory = memory_use(device_);
  record.peak_allocated_bytes = std::max(held_peak_bytes_, memory.peak_bytes);
  record.peak_reserved_bytes = std::max(held_peak_reserved_bytes_, memory.peak_reserved_bytes);
  waited_seconds_ = 0;
  steps_at_record_ = steps_;
  sequences_at_record_ = sequences_;
  tokens_at_record_ = tokens_;
  record_time_ = now;
  held_peak_bytes_ = held_peak_reserved_bytes_ = 0;
  reset_peak(device_);
}

double RunMeter::expected_evaluation_seconds() const {
  if (evaluations_ > 0) return mean_evaluation_seconds_;
  const double sequences_per_step = static_cast<double>(sequences_ - sequences_before_) / static_cast<double>(steps_);
  return static_cast<double>(length_.validation_sequences) * mean_step_seconds_ / sequences_per_step * kForwardShare;
}

double RunMeter::seconds_left(double part) const {
  if (steps_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const EvaluationPlan& plan = length_.evaluations;
  const std::int64_t evaluations = plan.count() - plan.count_until(steps_before_) - evaluations_;
  return (static_cast<double>(length_.steps - steps_before_ - steps_) - part) * mean_step_seconds_ +
         (evaluations > 0 ? static_cast<double>(evaluations) * expected_evaluation_seconds() : 0) +
         length_.closing_seconds;
}

}  // namespace tempo::train
