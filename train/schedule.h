// The learning rate of a step. n is the 1-based number of the optimizer step, N the planned number of steps, W the
// warm-up in steps (it may be a fraction when it comes from warmup_ratio x N).
//
//   n <= W     lr x n / W                                                      all schedules; the peak is reached once
//   constant   lr
//   linear     lr x max((p - 1) / (w - 1), 0), p = n / N, w = W / N            NVIDIA's LinearWarmUpScheduler
//   poly       lr x sqrt(max(1 - p, 0))                                        NVIDIA's PolyWarmUpScheduler, degree 0.5
//   cosine     min_lr + (lr - min_lr) x (1 + cos(pi x (n - W) / (N - W))) / 2  llm.c's
//
// linear and poly never go below min_lr; poly is not rescaled, so it jumps down after the warm-up. Steps past N get lr
// (constant) or min_lr (the others). Without warm-up the decay
// is one step later (n - 1 in place of n), so that step 1 has lr.
//
// Thread rule: values; a function without state.
#pragma once

#include <cstdint>
#include <string>

namespace tempo::train {

enum class ScheduleKind { kConstant, kLinear, kPoly, kCosine };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak_lr = 0;
  double min_lr = 0;
  double warmup_steps = 0;     ///< W; need not be whole
  std::int64_t num_steps = 0;  ///< N

  /// The rate that step n (from 1) applies. Never negative, never NaN.
  double lr(std::int64_t n) const;
};

}  // namespace tempo::train
