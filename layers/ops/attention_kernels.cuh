// Attention between its matrix products: kernel bodies. Any grid; one block per row (head and query) and turn.
//
// All tensors are [num_heads, slots, slots] of one sequence. Queries and keys at or beyond the sequence's real length get
// probability 0 exactly; so they add nothing to any product, forward or backward.
#pragma once

#include "layers/math/dropout.h"
#include "layers/math/softmax.h"
#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

/// weights: in place. `mask` and `dropped` are both null or both there.
__global__ void __launch_bounds__(kThreads)
    attention_probabilities(math::DropoutKey key, const std::int64_t* length, const std::int64_t* example, float scale,
                            float* weights, std::uint8_t* mask, float* dropped, std::int64_t num_heads,
                            std::int64_t slots) {
  for (std::int64_t row = blockIdx.x; row < num_heads * slots; row += gridDim.x) {
    const std::int64_t query = row % slots;
    const std::int64_t at = row * slots;
    const std::int64_t keys = query < *length ? *length : 0;  // a padded query sees none
    float largest = -INFINITY;
    for (std::int64_t i = threadIdx.x; i < keys; i += kThreads) {
      const float score = weights[at + i] * scale;
      largest = score > largest ? score : largest;
    }
    largest = block_max(largest);
    float total = 0;
    for (std::int64_t i = threadIdx.x; i < keys; i += kThreads) {
      const float weight = math::softmax_weight(weights[at + i] * scale, largest);
      weights[at + i] = weight;
      total += weight;
    }
    const float inverse = 1.0f / block_sum(total);
    for (std::int64_t eight = threadIdx.x; eight * math::kDropoutBlock < slots; eight += kThreads) {
      math::PhiloxWords words{};
      if (dropped != nullptr) {
        words = math::dropout_words(key, static_cast<std::uint32_t>(eight), static_cast<std::uint32_t>(row / slots),
                                    static_cast<std::uint32_t>(query), static_cast<std::uint32_t>(*example));
      }
#pragma unroll
      for (int lane = 0; lane < math::kDropoutBlock; ++lane) {
        const std::int64_t i = eight * math::kDropoutBlock + lane;
        if (i >= slots) break;
        const float probability = i < keys ? weights[at + i] * inverse : 0.0f;
        weights[at + i] = probability;
        if (dropped == nullptr) continue;
        const bool keep = i < keys && math::dropout_keeps(key, words, lane);
        mask[at + i] = keep;
        dropped[at + i] = keep ? probability * key.scale() : 0.0f;
      }
    }
  }
}

/// grad: in place. `mask` may be null.
__global__ void __launch_bounds__(kThreads)
    attention_product_grad(const float* probabilities, const std::uint8_t* mask, float keep_scale, float score_scale,
                           float* grad, std::int64_t rows, std::int64_t slots) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t at = row * slots;
    float dot = 0;
    for (std::int64_t i = threadIdx.x; i < slots; i += kThreads) {
      float from = grad[at + i];
      if (mask != nullptr) from = mask[at + i] != 0 ? from * keep_scale : 0.0f;
      grad[at + i] = from;
      dot = std::fma(from, probabilities[at + i], dot);
    }
    const float row_dot = block_sum(dot);
    for (std::int64_t i = threadIdx.x; i < slots; i += kThreads) {
      grad[at + i] = math::softmax_grad(probabilities[at + i], grad[at + i], row_dot) * score_scale;
    }
  }
}

}  // namespace tempo::layers::cuda
