// One element of an AdamW or LAMB step.
//
//   g = clip * gradient
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   u = (m / c1) / (sqrt(v / c2) + eps), c1 = 1 - beta1^t, c2 = 1 - beta2^t (both 1 without bias correction)
//   AdamW (Loshchilov & Hutter 2019)   p = p (1 - lr wd) - lr u
//   LAMB (You et al. 2020, as apex FusedLAMB)   p = p - lr r (u + wd p), r = |p| / |u + wd p| where wd is not 0
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "layers/math/scalar.h"

namespace tempo::layers::math {

/// What does not change from step to step.
struct AdamRule {
  double beta1;
  double beta2;
  double eps;
  bool bias_correction;
};

/// The numbers all elements of a tensor share in one step.
struct AdamScalars {
  float beta1;
  float beta2;
  float one_minus_beta1;  // rounded once from double: 1 - float(beta2) loses three digits
  float one_minus_beta2;
  float inverse_c1;
  float inverse_sqrt_c2;
  float eps;
};

/// beta^t by repeated squaring: products only, so that host and device agree to the bit.
TEMPO_HOST_DEVICE double power(double beta, std::int64_t t) {
  double result = 1;
  for (double square = beta; t > 0; t >>= 1, square *= square) {
    if ((t & 1) != 0) result *= square;
  }
  return result;
}

/// Those of update number t, from 1.
TEMPO_HOST_DEVICE AdamScalars adam_scalars(const AdamRule& rule, std::int64_t t) {
  const double c1 = rule.bias_correction ? 1 - power(rule.beta1, t) : 1.0;
  const double c2 = rule.bias_correction ? 1 - power(rule.beta2, t) : 1.0;
  return {static_cast<float>(rule.beta1),     static_cast<float>(rule.beta2), static_cast<float>(1 - rule.beta1),
          static_cast<float>(1 - rule.beta2), static_cast<float>(1 / c1),     static_cast<float>(1 / std::sqrt(c2)),
          static_cast<float>(rule.eps)};
}

/// Moves the moments and returns u.
TEMPO_HOST_DEVICE float adam_direction(const AdamScalars& s, float grad, float& moment, float& variance) {
  moment = std::fma(s.beta1, moment, s.one_minus_beta1 * grad);
  variance = std::fma(s.beta2, variance, s.one_minus_beta2 * grad * grad);
  return moment * s.inverse_c1 / std::fma(std::sqrt(variance), s.inverse_sqrt_c2, s.eps);
}

/// LAMB's ratio of norms from their squares; 1 where either is 0.
TEMPO_HOST_DEVICE double lamb_ratio(double weight_squares, double direction_squares) {
  return weight_squares != 0 && direction_squares != 0 ? std::sqrt(weight_squares) / std::sqrt(direction_squares) : 1.0;
}

}  // namespace tempo::layers::math
