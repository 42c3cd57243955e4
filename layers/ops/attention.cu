#include "layers/ops/attention_kernels.cuh"
#include "layers/ops/launch.cuh"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {

void attention_softmax(void* stream, const AttentionSequence& sequence, const math::DropoutKey& key, float scale,
                       float* weights, std::uint8_t* mask, float* dropped) {
  launch(stream, "attention_probabilities", attention_probabilities, sequence.num_heads * sequence.slots, key,
         sequence.length, sequence.example, scale, weights, mask, dropped, sequence.num_heads, sequence.slots);
}

void attention_score_grad(void* stream, std::int64_t rows, std::int64_t slots, const float* probabilities,
                          const std::uint8_t* mask, float keep_scale, float score_scale, float* grad) {
  launch(stream, "attention_product_grad", attention_product_grad, rows, probabilities, mask, keep_scale, score_scale,
         grad, rows, slots);
}

}  // namespace tempo::layers::cuda
