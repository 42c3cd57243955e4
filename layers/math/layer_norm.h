// LayerNorm (Ba et al. 2016) per element; sums over a row are the caller's.
//
//   y = x_hat gamma + beta, x_hat = (z - mean) rstd
//   dz = rstd (dy gamma - mean_c(dy gamma) - x_hat mean_c(dy gamma x_hat))
//   dgamma = sum_rows dy x_hat, dbeta = sum_rows dy
// A backward pass that kept y in place of z takes x_hat = (y - beta) / gamma, which is as good as y tells:
//   |error| <= u (3 |x_hat| + |beta / gamma|), u = 2^-24, 2^-11, 2^-8 for y in fp32, fp16, bf16 (docs/operators.md derives it).
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include <limits>

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

/// Largest |beta / gamma| at which x_hat is taken from a y stored as T. In fp32 at 100 x_hat is off by 6e-6, dx by 1e-7 of its
/// norm (measured; with z kept 2e-7 and 1e-9). In 16 bits at 4 both are off by at most twice what rounding z itself does. The
/// error grows in proportion, so what is beyond would be noise sooner or later.
template <typename T>
inline constexpr float kMaxBetaOverGamma = kStoringRounds<T> ? 4.0f : 100.0f;

/// Below it gamma x_hat loses bits to underflow: half the smallest number T has, over this, is u.
template <typename T>
inline constexpr Compute<T> kSmallestGamma = std::numeric_limits<Compute<T>>::min();  // bf16 has the exponents of float
template <>
inline constexpr float kSmallestGamma<c10::Half> = 0x1p-14f;

/// Whether y, stored as T, tells x_hat in a channel. Not where gamma or beta is NaN.
template <typename T>
TEMPO_HOST_DEVICE bool is_channel_invertible(Compute<T> gamma, Compute<T> beta) {
  const Compute<T> size = std::fabs(gamma);
  return size >= kSmallestGamma<T> && std::fabs(beta) <= kMaxBetaOverGamma<T> * size;
}

/// x_hat from y, stored as T. 0 where gamma is 0 or nearly: y knows nothing of it, and a NaN would spread to the whole row.
template <typename T>
TEMPO_HOST_DEVICE Compute<T> inverted(Compute<T> y, Compute<T> gamma, Compute<T> beta) {
  const bool is_lost = std::fabs(gamma) < kSmallestGamma<T>;
  const Compute<T> x_hat = (y - beta) / (is_lost ? Compute<T>{1} : gamma);
  return is_lost ? Compute<T>{0} : x_hat;
}

/// `weighted_grad` = dy gamma; the means are over the row.
template <typename T>
TEMPO_HOST_DEVICE T layer_norm_input_grad(T weighted_grad, T x_hat, T rstd, T mean_grad, T mean_grad_x_hat) {
  return rstd * (std::fma(-x_hat, mean_grad_x_hat, weighted_grad) - mean_grad);
}

}  // namespace tempo::layers::math
