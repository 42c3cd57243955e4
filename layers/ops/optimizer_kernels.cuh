// Optimizer steps and norms: kernel bodies. Any grid, except for the sums of partial sums, which are one block's.
#pragma once

#include "layers/math/optimizer.h"
#include "layers/ops/block.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

/// Partial sum number n takes the elements that thread block n of a grid of `num_sums` blocks would: whatever the grid is.
__global__ void __launch_bounds__(kThreads)
    square_sums(const float* x, std::int64_t size, double* sums, std::int64_t num_sums) {
  for (std::int64_t n = blockIdx.x; n < num_sums; n += gridDim.x) {
    double total = 0;
    for (std::int64_t i = n * kThreads + threadIdx.x; i < size; i += num_sums * kThreads) {
      const double value = x[i];
      total = std::fma(value, value, total);
    }
    total = block_sum(total);
    if (threadIdx.x == 0) sums[n] = total;
  }
}

/// The sum of partial sums, in a block.
inline __device__ double sum_of(const double* sums, std::int64_t num_sums) {
  double total = 0;
  for (std::int64_t n = threadIdx.x; n < num_sums; n += kThreads) total += sums[n];
  return block_sum(total);
}

/// One block: *total = the partial sums together.
__global__ void __launch_bounds__(kThreads) add_square_sums(const double* sums, std::int64_t num_sums, double* total) {
  const double sum = sum_of(sums, num_sums);
  if (threadIdx.x == 0) *total = sum;
}

/// One thread: the scalars of update *count.
__global__ void adam_scalars(math::AdamRule rule, const std::int64_t* count, math::AdamScalars* scalars) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *scalars = math::adam_scalars(rule, *count);
}

__global__ void __launch_bounds__(kThreads) adamw_update(AdamUpdate update, float lr, float decay_factor, float* p,
                                                         const float* g, float* m, float* v, std::int64_t size) {
  if (*update.count == 0) return;
  const math::AdamScalars scalars = *update.scalars;
  for (std::int64_t i = first_element(); i < size; i += element_stride()) {
    const float u = math::adam_direction(scalars, g[i] * *update.gradient_scale, m[i], v[i]);
    p[i] = std::fma(-lr, u, p[i] * decay_factor);
  }
}

/// Leaves u + wd p in the gradient.
__global__ void __launch_bounds__(kThreads) lamb_direction(AdamUpdate update, float weight_decay, const float* p,
                                                           float* g, float* m, float* v, std::int64_t size) {
  if (*update.count == 0) return;
  const math::AdamScalars scalars = *update.scalars;
  for (std::int64_t i = first_element(); i < size; i += element_stride()) {
    g[i] = std::fma(weight_decay, p[i], math::adam_direction(scalars, g[i] * *update.gradient_scale, m[i], v[i]));
  }
}

/// One block: the ratio of two norms, from the partial sums of their squares.
__global__ void __launch_bounds__(kThreads)
    lamb_norm_ratio(const double* weight_sums, const double* direction_sums, std::int64_t num_sums, double* ratio) {
  const double weight_squares = sum_of(weight_sums, num_sums);
  const double direction_squares = sum_of(direction_sums, num_sums);
  if (threadIdx.x == 0) *ratio = math::lamb_ratio(weight_squares, direction_squares);
}

/// `ratio` may be null: 1.
__global__ void __launch_bounds__(kThreads) lamb_update(AdamUpdate update, double lr, const double* ratio,
                                                        const float* direction, float* p, std::int64_t size) {
  if (*update.count == 0) return;
  const auto factor = static_cast<float>(-lr * (ratio == nullptr ? 1.0 : *ratio));
  for (std::int64_t i = first_element(); i < size; i += element_stride()) p[i] = std::fma(factor, direction[i], p[i]);
}

}  // namespace tempo::layers::cuda
