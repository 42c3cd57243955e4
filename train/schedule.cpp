#include "train/schedule.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace tempo::train {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// 1 at the end of the warm-up, 0 at the last step. `step` lies between the two, so that no divisor is 0.
double cosine_decay(double step, double warmup_steps, double num_steps) {
  return (1 + std::cos(kPi * (step - warmup_steps) / (num_steps - warmup_steps))) / 2;
}

}  // namespace

double Schedule::lr(std::int64_t n) const {
  TORCH_CHECK(n >= 1, "Schedule::lr: steps are numbered from 1, got ", n);
  const double step = static_cast<double>(n);
  const double last_step = static_cast<double>(num_steps);
  // The quotient first: at the end of the warm-up it is exactly 1.
  if (step <= warmup_steps && n <= num_steps) return peak_lr * (step / warmup_steps);
  if (kind == ScheduleKind::kConstant) return peak_lr;
  if (n > num_steps) return min_lr;

  // Without a warm-up the first step stands where a warm-up would have ended: at the peak.
  const double step_of_decay = warmup_steps > 0 ? step : step - 1;
  const double progress = step_of_decay / last_step;
  switch (kind) {
    case ScheduleKind::kLinear:
      return std::max(peak_lr * std::max(0.0, (progress - 1) / (warmup_steps / last_step - 1)), min_lr);
    case ScheduleKind::kPoly:
      return std::max(peak_lr * std::sqrt(std::max(0.0, 1 - progress)), min_lr);
    case ScheduleKind::kCosine:
      return min_lr + (peak_lr - min_lr) * cosine_decay(step_of_decay, warmup_steps, last_step);
    case ScheduleKind::kConstant:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "unknown schedule");
}

}  // namespace tempo::train
