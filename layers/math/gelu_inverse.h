// The slope of GELU from its output: what a backward pass needs that keeps y and one bit instead of x (Andoorveedu et al. 2022).
//
// GELU falls to its minimum y* at x* = -0.75 and rises from there, so y and "x is not left of x*" determine x. y is a parabola
// about x*, hence the slope d is smooth in s = sqrt(y - y*) there, and only there:
//   right  d = s P(t)/Q(t), t = s - 1.6, up to y = 5.6; 1 above
//   left   d = s v T(w), v = sqrt(s0 - s), w = sqrt(v), s0 = sqrt(-y*)
// A last place of a float y hides up to 5e-5 of d next to x*, whatever the formula; so the forward must not add rounding of
// its own there: value() uses the Taylor polynomial about x*. Largest errors of d, exact and tanh form, from value():
//   |x - x*| < 0.01   4.8e-5 and 5.2e-5        elsewhere   9e-7        (tests/layers/gelu_inverse_test.cpp checks them)
// +inf gives 1, NaN passes, y below y* counts as y*. Coefficients: scripts/fit_gelu.py. In double the output is inverted by
// iteration, for numerical gradient checks; errors are those that rounding y brings, 1e-8 next to x*.
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include "layers/math/gelu.h"

namespace tempo::layers::math {

/// Form: GeluExact or GeluTanh.
template <typename Form>
struct GeluInverse {
  using Fit = typename Form::Fit;

  /// The output to keep: GELU, to 0.53 of a last place for |x - x*| < 1/8 and as Form::value elsewhere.
  static TEMPO_HOST_DEVICE float value(float x) {
    const float q = (x - Fit::kMinXHigh) - Fit::kMinXLow;  // the first difference is exact near x*
    float c = std::fma(q, Fit::kTaylor7, Fit::kTaylor6);
    c = std::fma(q, c, Fit::kTaylor5);
    c = std::fma(q, c, Fit::kTaylor4);
    c = std::fma(q, c, Fit::kTaylor3);
    c = std::fma(q, c, Fit::kTaylor2);
    const float near = std::fma(q * q, c, Fit::kMinYLow) + Fit::kMinYHigh;
    const float far = Form::value(x);
    return std::fabs(q) < Fit::kTaylorRadius ? near : far;
  }

  static TEMPO_HOST_DEVICE double value(double x) { return Form::value(x); }

  /// The bit to keep: x >= x*.
  static TEMPO_HOST_DEVICE bool is_right(float x) { return x >= Fit::kFirstRight; }
  static TEMPO_HOST_DEVICE bool is_right(double x) { return x >= Fit::kMinX; }

  /// Both sides are evaluated and one is selected: no branch.
  static TEMPO_HOST_DEVICE float slope(float y, bool right) {
    const float above = (y - Fit::kMinYHigh) - Fit::kMinYLow;
    const float s = std::sqrt(above < 0.0f ? 0.0f : above);  // a select that lets NaN through
    return right ? right_slope(y, s) : left_slope(s);
  }

  static TEMPO_HOST_DEVICE double slope(double y, bool right) {
    const double above = y - Form::value(Fit::kMinX);
    if (above != above) return above;
    if (above <= 0) return 0;
    if (right && y > 40) return 1;
    // Right of x* GELU(x) > x - 0.2; left of -40 it is 0 in double.
    double left_end = right ? Fit::kMinX : -40;
    double right_end = right ? (y > 0 ? y : 0) + 0.2 : Fit::kMinX;
    // To begin with a parabola about x* (half of GELU'' there is 0.2157); then Newton, bisection where that leaves the bracket.
    const double distance = std::sqrt(above / 0.2157);
    double x = right ? Fit::kMinX + distance : Fit::kMinX - distance;
    for (int step = 0; step < 200; ++step) {
      if (!(x > left_end && x < right_end)) x = 0.5 * (left_end + right_end);
      const ValueAndSlope<double> at = Form::value_and_slope(x);
      if (at.value == y || x == left_end || x == right_end) break;
      ((at.value < y) == right ? left_end : right_end) = x;
      const double next = x - (at.value - y) / at.slope;
      if (next == x) break;
      x = next;
    }
    return Form::value_and_slope(x).slope;
  }

 private:
  static TEMPO_HOST_DEVICE float right_slope(float y, float s) {
    const float t = s - Fit::kRightShift;
    float p = std::fma(t, Fit::kP8, Fit::kP7);
    p = std::fma(t, p, Fit::kP6);
    p = std::fma(t, p, Fit::kP5);
    p = std::fma(t, p, Fit::kP4);
    p = std::fma(t, p, Fit::kP3);
    p = std::fma(t, p, Fit::kP2);
    p = std::fma(t, p, Fit::kP1);
    p = std::fma(t, p, Fit::kP0);
    float q = std::fma(t, Fit::kQ7, Fit::kQ6);
    q = std::fma(t, q, Fit::kQ5);
    q = std::fma(t, q, Fit::kQ4);
    q = std::fma(t, q, Fit::kQ3);
    q = std::fma(t, q, Fit::kQ2);
    q = std::fma(t, q, Fit::kQ1);
    q = std::fma(t, q, Fit::kQ0);
    const float ratio = s * p / q;
    return y > Fit::kRightEnd ? 1.0f : ratio;
  }

  static TEMPO_HOST_DEVICE float left_slope(float s) {
    const float rest = Fit::kRootAtZero - s;
    const float v = std::sqrt(rest < 0.0f ? 0.0f : rest);
    const float w = std::sqrt(v);
    float p = std::fma(w, Fit::kT7, Fit::kT6);
    p = std::fma(w, p, Fit::kT5);
    p = std::fma(w, p, Fit::kT4);
    p = std::fma(w, p, Fit::kT3);
    p = std::fma(w, p, Fit::kT2);
    p = std::fma(w, p, Fit::kT1);
    p = std::fma(w, p, Fit::kT0);
    return s * v * p;
  }
};

}  // namespace tempo::layers::math
