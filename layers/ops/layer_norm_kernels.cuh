// LayerNorm: kernel bodies. Any grid. Sums over a row: one block per row and turn; sums over rows: one column per thread.
// The backward kernels take x_hat from the input or from the output.
#pragma once

#include "layers/math/layer_norm.h"
#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

__global__ void __launch_bounds__(kThreads)
    layer_norm_forward(const float* z, const float* gamma, const float* beta, float eps, float* y, float* mean,
                       float* rstd, std::int64_t rows, std::int64_t size) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = z + row * size;
    float total = 0;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) total += from[i];
    const float row_mean = block_sum(total) / static_cast<float>(size);
    float squares = 0;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      const float centred = from[i] - row_mean;
      squares = std::fma(centred, centred, squares);
    }
    const float row_rstd = 1.0f / std::sqrt(block_sum(squares) / static_cast<float>(size) + eps);
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      y[row * size + i] = math::layer_norm_value(math::normalized(from[i], row_mean, row_rstd), gamma[i], beta[i]);
    }
    if (threadIdx.x == 0) {
      mean[row] = row_mean;
      rstd[row] = row_rstd;
    }
  }
}

/// y from the z, mean and rstd of a forward pass: that pass's bits.
__global__ void __launch_bounds__(kThreads)
    layer_norm_again(const float* z, const float* mean, const float* rstd, const float* gamma, const float* beta,
                     float* y, std::int64_t rows, std::int64_t size) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      const std::int64_t at = row * size + i;
      y[at] = math::layer_norm_value(math::normalized(z[at], mean[row], rstd[row]), gamma[i], beta[i]);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    layer_norm_invertible(const float* gamma, const float* beta, bool* answer, std::int64_t size) {
  if (blockIdx.x != 0) return;
  int unsafe = 0;
  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    if (!math::is_channel_invertible<float>(gamma[i], beta[i])) unsafe = 1;
  }
  unsafe = block_max(unsafe);
  if (threadIdx.x == 0) *answer = unsafe == 0;
}

struct NormInput {
  const float* z;
  const float* mean;
  const float* rstd;
  __device__ float operator()(std::int64_t row, std::int64_t column, std::int64_t size) const {
    return math::normalized(z[row * size + column], mean[row], rstd[row]);
  }
};

struct NormOutput {
  const float* y;
  const float* gamma;
  const float* beta;
  __device__ float operator()(std::int64_t row, std::int64_t column, std::int64_t size) const {
    return math::inverted<float>(y[row * size + column], gamma[column], beta[column]);
  }
};

template <typename XHat>
__global__ void __launch_bounds__(kThreads)
    layer_norm_input_grad(const float* grad, XHat x_hat_of, const float* rstd, const float* gamma, float* grad_z,
                          std::int64_t rows, std::int64_t size) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t at = row * size;
    float grads = 0;
    float grads_x_hat = 0;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      const float weighted = grad[at + i] * gamma[i];
      grads += weighted;
      grads_x_hat = std::fma(weighted, x_hat_of(row, i, size), grads_x_hat);
    }
    const float mean_grad = block_sum(grads) / static_cast<float>(size);
    const float mean_grad_x_hat = block_sum(grads_x_hat) / static_cast<float>(size);
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      const float x_hat = x_hat_of(row, i, size);
      grad_z[at + i] =
          math::layer_norm_input_grad(grad[at + i] * gamma[i], x_hat, rstd[row], mean_grad, mean_grad_x_hat);
    }
  }
}

/// gamma_sums, beta_sums [num_runs, size]: sums over the rows of each run, in order. The last run may be short.
template <typename XHat>
__global__ void __launch_bounds__(kThreads)
    layer_norm_run_sums(const float* grad, XHat x_hat_of, float* gamma_sums, float* beta_sums, std::int64_t num_runs,
                        std::int64_t rows_per_run, std::int64_t rows, std::int64_t size) {
  for (std::int64_t e = first_element(); e < num_runs * size; e += element_stride()) {
    const std::int64_t column = e % size;
    const std::int64_t first = e / size * rows_per_run;
    const std::int64_t end = first + rows_per_run < rows ? first + rows_per_run : rows;
    float of_gamma = 0;
    float of_beta = 0;
    for (std::int64_t row = first; row < end; ++row) {
      const float from = grad[row * size + column];
      of_gamma = std::fma(from, x_hat_of(row, column, size), of_gamma);
      of_beta += from;
    }
    gamma_sums[e] = of_gamma;
    beta_sums[e] = of_beta;
  }
}

__global__ void __launch_bounds__(kThreads)
    layer_norm_add_runs(const float* gamma_sums, const float* beta_sums, float* grad_gamma, float* grad_beta,
                        std::int64_t num_runs, std::int64_t size) {
  for (std::int64_t column = first_element(); column < size; column += element_stride()) {
    float of_gamma = 0;
    float of_beta = 0;
    for (std::int64_t run = 0; run < num_runs; ++run) {
      of_gamma += gamma_sums[run * size + column];
      of_beta += beta_sums[run * size + column];
    }
    grad_gamma[column] = of_gamma;
    grad_beta[column] = of_beta;
  }
}

}  // namespace tempo::layers::cuda
