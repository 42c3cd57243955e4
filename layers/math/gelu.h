// GELU (Hendrycks & Gimpel 2016) in its exact and its tanh form, with derivatives, from the input. From the output:
// gelu_inverse.h.
//
//   exact   y = x Phi(x)                              y' = Phi(x) + x phi(x)
//   tanh    y = x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3)))
//
// The exact form uses Phi(-t) = exp(-t^2/2) m(1/(1 + 0.3 t)), t = |x|, with m a polynomial (scripts/fit_gelu.py): the left
// tail keeps its relative accuracy, which 0.5 (1 + erf) loses. Largest errors for x in [-8, 8], y relative to max(|y|, 1e-3) and
// y' absolute: exact form 6.3e-7 and 2.2e-7, tanh form 1.1e-6 and 2.0e-7 (tests/layers/math_test.cpp checks them).
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include "layers/math/scalar.h"

namespace tempo::layers::math {

enum class GeluForm : std::int64_t { kExact = 0, kTanh = 1 };

/// Beyond it, up to infinity, GELU is x or 0 in float; factors are taken there, since infinity times 0 would be NaN.
inline constexpr float kFlat = 40.0f;

/// A value and its derivative.
template <typename T>
struct ValueAndSlope {
  T value;
  T slope;
};

struct GeluExact {
  using Fit = GeluExactFit;

  static TEMPO_HOST_DEVICE float value(float x) {
    const Parts parts = split(x);
    return std::fma(-parts.t, parts.density * parts.mills, x > 0.0f ? x : 0.0f);
  }

  static TEMPO_HOST_DEVICE ValueAndSlope<float> value_and_slope(float x) {
    const Parts parts = split(x);
    const float y = std::fma(-parts.t, parts.density * parts.mills, x > 0.0f ? x : 0.0f);
    // 1/sqrt(2 pi) = 0.398942280; the slope at -t is Phi(-t) - t phi(t), and slope(x) + slope(-x) = 1.
    const float slope_left = parts.density * std::fma(-0.398942280f, parts.t, parts.mills);
    return {y, x > 0.0f ? 1.0f - slope_left : slope_left};
  }

  static TEMPO_HOST_DEVICE double value(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }

  static TEMPO_HOST_DEVICE ValueAndSlope<double> value_and_slope(double x) {
    const double phi = 0.39894228040143267794 * std::exp(-0.5 * x * x);
    return {value(x), 0.5 * std::erfc(-x * 0.70710678118654752440) + x * phi};
  }

 private:
  struct Parts {
    float t;        // |x|, at most kFlat
    float density;  // exp(-t^2/2)
    float mills;    // Phi(-t) / density
  };

  static TEMPO_HOST_DEVICE Parts split(float x) {
    const float size = std::fabs(x);
    const float t = size > kFlat ? kFlat : size;  // a select that lets NaN through
    const float density = exp_nonpositive(-0.5f * t * t);
    const float v = 1.0f / std::fma(0.3f, t, 1.0f);
    float m = std::fma(v, kMills8, kMills7);
    m = std::fma(v, m, kMills6);
    m = std::fma(v, m, kMills5);
    m = std::fma(v, m, kMills4);
    m = std::fma(v, m, kMills3);
    m = std::fma(v, m, kMills2);
    m = std::fma(v, m, kMills1);
    m = std::fma(v, m, kMills0);
    return {t, density, m};
  }
};

struct GeluTanh {
  using Fit = GeluTanhFit;

  static TEMPO_HOST_DEVICE float value(float x) { return value_and_slope(x).value; }

  static TEMPO_HOST_DEVICE ValueAndSlope<float> value_and_slope(float x) {
    // 2 sqrt(2/pi) = 1.59576912, times 0.044715 = 0.0713548163; the slope of the inner cubic has three times the latter.
    const float near = x > kFlat ? kFlat : x < -kFlat ? -kFlat : x;  // selects that let NaN through
    const float square = near * near;
    const float z = near * std::fma(0.0713548163f, square, 1.59576912f);
    const float e = exp_nonpositive(-std::fabs(z));
    const float upper = 1.0f / (1.0f + e);  // sigmoid(|z|)
    const float lower = e * upper;          // sigmoid(-|z|)
    const float sigmoid = x > 0.0f ? upper : lower;
    const float inner_slope = std::fma(0.214064449f, square, 1.59576912f);
    return {(x > 0.0f ? x : near) * sigmoid, std::fma(near * inner_slope, lower * upper, sigmoid)};
  }

  static TEMPO_HOST_DEVICE double value(double x) { return value_and_slope(x).value; }

  static TEMPO_HOST_DEVICE ValueAndSlope<double> value_and_slope(double x) {
    constexpr double kScale = 1.59576912160573071176;  // 2 sqrt(2/pi)
    const double sigmoid = 1.0 / (1.0 + std::exp(-kScale * (x + 0.044715 * x * x * x)));
    return {x * sigmoid, sigmoid + x * kScale * (1.0 + 0.134145 * x * x) * sigmoid * (1.0 - sigmoid)};
  }
};

}  // namespace tempo::layers::math
