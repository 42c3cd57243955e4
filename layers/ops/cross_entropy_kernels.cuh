// Cross-entropy: kernel bodies. Any grid, except for the last sum, which is one block's.
#pragma once

#include "layers/math/softmax.h"
#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

/// One block per row and turn. Rows with the ignored label get 0 and count as not correct.
__global__ void __launch_bounds__(kThreads)
    cross_entropy_rows(const float* logits, const std::int64_t* labels, std::int64_t columns, std::int64_t num_classes,
                       std::int64_t ignore_label, float* log_sum_exp, std::uint8_t* is_correct, std::int64_t rows) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = logits + row * columns;
    const std::int64_t label = labels[row];
    const std::int64_t used = label == ignore_label ? 0 : num_classes;
    float largest = -INFINITY;
    for (std::int64_t i = threadIdx.x; i < used; i += kThreads) largest = from[i] > largest ? from[i] : largest;
    largest = block_max(largest);
    float total = 0;
    for (std::int64_t i = threadIdx.x; i < used; i += kThreads) total += math::softmax_weight(from[i], largest);
    total = block_sum(total);
    if (threadIdx.x == 0) {
      log_sum_exp[row] = used == 0 ? 0.0f : largest + std::log(total);
      is_correct[row] = used != 0 && from[label] == largest;
    }
  }
}

/// One block: sums over rows, in double.
__global__ void __launch_bounds__(kThreads)
    cross_entropy_sums(const float* logits, const std::int64_t* labels, std::int64_t columns, std::int64_t ignore_label,
                       const float* log_sum_exp, const std::uint8_t* is_correct, float* loss_sum,
                       std::int64_t* num_correct, std::int64_t rows) {
  double loss = 0;
  std::int64_t correct = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    if (labels[row] == ignore_label) continue;
    loss += static_cast<double>(log_sum_exp[row]) - static_cast<double>(logits[row * columns + labels[row]]);
    correct += is_correct[row];
  }
  loss = block_sum(loss);
  correct = block_sum(correct);
  if (threadIdx.x == 0) {
    *loss_sum = static_cast<float>(loss);
    *num_correct = correct;
  }
}

/// One block per row and turn.
__global__ void __launch_bounds__(kThreads)
    cross_entropy_logit_grad(const float* grad, const float* logits, const std::int64_t* labels, std::int64_t columns,
                             std::int64_t num_classes, std::int64_t ignore_label, const float* log_sum_exp,
                             float* grad_logits, std::int64_t rows) {
  const float scale = *grad;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t label = labels[row];
    const std::int64_t used = label == ignore_label ? 0 : num_classes;
    for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
      const std::int64_t at = row * columns + i;
      float to = i < used ? scale * math::softmax_weight(logits[at], log_sum_exp[row]) : 0.0f;
      if (used != 0 && i == label) to -= scale;
      grad_logits[at] = to;
    }
  }
}

}  // namespace tempo::layers::cuda
