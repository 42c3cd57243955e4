// Softmax per element, from the row's maximum and sum, and its gradient from the output alone.
//
//   p = exp(s - max) / sum,   ds = p (dp - sum_row(dp p))
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include "layers/math/scalar.h"

namespace tempo::layers::math {

/// exp(score - row_max); 0 for a score of minus infinity.
template <typename T>
TEMPO_HOST_DEVICE T softmax_weight(T score, T row_max) {
  return exp_nonpositive(score - row_max);
}

template <typename T>
TEMPO_HOST_DEVICE T softmax_grad(T probability, T grad, T row_dot) {
  return probability * (grad - row_dot);
}

}  // namespace tempo::layers::math
