// LayerNorm (Ba et al. 2016) per element; sums over a row are the caller's.
//
//   y = x_hat gamma + beta, x_hat = (z - mean) rstd
//   dz = rstd (dy gamma - mean_c(dy gamma) - x_hat mean_c(dy gamma x_hat))
//   dgamma = sum_rows dy x_hat, dbeta = sum_rows dy
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include "layers/math/scalar.h"

namespace tempo::layers::math {

template <typename T>
TEMPO_HOST_DEVICE T normalized(T z, T mean, T rstd) {
  return (z - mean) * rstd;
}

template <typename T>
TEMPO_HOST_DEVICE T layer_norm_value(T x_hat, T gamma, T beta) {
  return std::fma(x_hat, gamma, beta);
}

/// `weighted_grad` = dy gamma; the means are over the row.
template <typename T>
TEMPO_HOST_DEVICE T layer_norm_input_grad(T weighted_grad, T x_hat, T rstd, T mean_grad, T mean_grad_x_hat) {
  return rstd * (std::fma(-x_hat, mean_grad_x_hat, weighted_grad) - mean_grad);
}

}  // namespace tempo::layers::math
