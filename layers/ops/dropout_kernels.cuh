// Dropout: kernel bodies. Any grid. A thread decides the eight elements of one Philox call.
#pragma once

#include "layers/math/dropout.h"
#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

/// The sequence that slot `row` belongs to: the last one that starts at or before it.
inline __device__ std::int64_t sequence_of(const std::int64_t* starts, std::int64_t num_sequences, std::int64_t row) {
  std::int64_t first = 0;
  std::int64_t end = num_sequences;
  while (end - first > 1) {
    const std::int64_t middle = (first + end) / 2;
    if (starts[middle] <= row) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

/// `residual` and `mask` may be null. A packed mask has a byte for each Philox call.
__global__ void __launch_bounds__(kThreads)
    dropout_forward(math::DropoutKey key, const float* x, const float* residual, const std::int64_t* starts,
                    const std::int64_t* ids, std::int64_t num_sequences, float* y, std::uint8_t* mask, bool is_packed,
                    std::int64_t rows, std::int64_t size) {
  const std::int64_t row_bytes = (size + 7) / 8;
  const float scale = key.scale();
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t sequence = sequence_of(starts, num_sequences, row);
    const auto position = static_cast<std::uint32_t>(row - starts[sequence]);
    const auto example = static_cast<std::uint32_t>(ids[sequence]);
    for (std::int64_t eight = threadIdx.x; eight * math::kDropoutBlock < size; eight += kThreads) {
      const math::PhiloxWords words = math::dropout_words(key, static_cast<std::uint32_t>(eight), 0, position, example);
      unsigned int byte = 0;
#pragma unroll
      for (int lane = 0; lane < math::kDropoutBlock; ++lane) {
        const std::int64_t channel = eight * math::kDropoutBlock + lane;
        if (channel >= size) break;
        const std::int64_t i = row * size + channel;
        const bool keep = math::dropout_keeps(key, words, lane);
        const float kept = keep ? x[i] * scale : 0.0f;
        if (mask != nullptr && !is_packed) mask[i] = keep;
        byte |= static_cast<unsigned int>(keep) << lane;
        y[i] = residual == nullptr ? kept : residual[i] + kept;
      }
      if (mask != nullptr && is_packed) mask[row * row_bytes + eight] = static_cast<std::uint8_t>(byte);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    dropout_input_grad(const float* grad, const std::uint8_t* mask, float scale, float* grad_x, std::int64_t size) {
  for (std::int64_t i = first_element(); i < size; i += element_stride())
    grad_x[i] = mask[i] != 0 ? grad[i] * scale : 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    packed_dropout_input_grad(const float* grad, const std::uint8_t* mask, float scale, float* grad_x,
                              std::int64_t rows, std::int64_t size) {
  const std::int64_t row_bytes = (size + 7) / 8;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t channel = threadIdx.x; channel < size; channel += kThreads) {
      const bool keep = (mask[row * row_bytes + channel / 8] >> (channel % 8) & 1) != 0;
      grad_x[row * size + channel] = keep ? grad[row * size + channel] * scale : 0.0f;
    }
  }
}

}  // namespace tempo::layers::cuda
