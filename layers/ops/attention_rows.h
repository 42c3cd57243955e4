// The rows of attention on the CPU: from products to probabilities, to dropped ones, and back to the gradient of the products.
//
// Not for: callers outside layers/ops. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "layers/math/scalar.h"

namespace tempo::layers {

/// A row's dropout as it is drawn: element i is kept where bits[i] < threshold, and multiplied by `scale`.
struct RowDraw {
  const std::uint16_t* bits;
  std::uint32_t threshold;
  float scale;
};

// For each type T of stored elements:
//
// softmax_row              in place, products of one query with `size` keys -> probabilities of the products times `scale`.
//                          Returns the log of the sum of exponentials.
// softmax_row_again        in place, the probabilities again, from the products and that logarithm.
// softmax_row_again_signed the same with the sign of a probability telling whether it is kept, and the dropped copy.
// drop_row                 dropped = probabilities x scale where mask is not 0, else 0.
// score_grad_row           in place, gradient of the dropped probabilities -> that of the products. `mask` may be null.
// score_grad_row_signed    the same from signed probabilities.
#define TEMPO_DECLARE_ATTENTION_ROWS(T)                                                                               \
  math::Compute<T> softmax_row(T* scores, math::Compute<T> scale, std::int64_t size);                                 \
  void softmax_row_again(T* scores, math::Compute<T> scale, math::Compute<T> log_sum_exp, std::int64_t size);         \
  void softmax_row_again_signed(T* scores, math::Compute<T> scale, math::Compute<T> log_sum_exp, const RowDraw& draw, \
                                std::int64_t size, T* dropped);                                                       \
  void drop_row(const T* probabilities, const std::uint8_t* mask, math::Compute<T> scale, std::int64_t size,          \
                T* dropped);                                                                                          \
  void score_grad_row(T* grad, const T* probabilities, const std::uint8_t* mask, math::Compute<T> keep_scale,         \
                      math::Compute<T> score_scale, std::int64_t size);                                               \
  void score_grad_row_signed(T* grad, const T* weights, math::Compute<T> keep_scale, math::Compute<T> score_scale,    \
                             std::int64_t size);

TEMPO_DECLARE_ATTENTION_ROWS(float)
TEMPO_DECLARE_ATTENTION_ROWS(c10::BFloat16)
TEMPO_DECLARE_ATTENTION_ROWS(c10::Half)
TEMPO_DECLARE_ATTENTION_ROWS(double)
#undef TEMPO_DECLARE_ATTENTION_ROWS

}  // namespace tempo::layers
