// Scalar building blocks that mean the same on host and device, bit for bit.
//
// Multiply-adds are explicit fma, division and square root are IEEE, exp is our own; with -ffp-contract=off (g++) and
// -fmad=false (nvcc) nothing is left to the compiler. Elements stored in fp32, bf16 or fp16 are computed with in float
// (Compute), and rounded once where they are stored; the double overloads use libm and serve numerical gradient checks.
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers/math/gelu_coefficients.h"

#if defined(__CUDACC__)
#define TEMPO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TEMPO_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace tempo::layers::math {

/// What one computes in with elements that are stored as T: T itself, or float for the 16-bit types.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Whether storing rounds: what a loop wants exactly it must not read back.
template <typename T>
inline constexpr bool kStoringRounds = !std::is_same_v<T, Compute<T>>;

TEMPO_HOST_DEVICE float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

TEMPO_HOST_DEVICE std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// exp(x) for x <= 0, relative error below 1e-7; 0 below -87, NaN for NaN.
TEMPO_HOST_DEVICE float exp_nonpositive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;  // a select that lets NaN through
  // Adding 1.5 x 2^23 leaves round(x log2 e) in the low bits of the mantissa.
  const float shifted = std::fma(clamped, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  // ln 2 in two floats; the first has 9 trailing zero bits, so n times it is exact.
  float r = std::fma(n, -0.693145752f, clamped);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = std::fma(r, kExp6, kExp5);
  p = std::fma(r, p, kExp4);
  p = std::fma(r, p, kExp3);
  p = std::fma(r, p, kExp2);
  p = std::fma(r, p, kExp1);
  p = std::fma(r, p, kExp0);
  p = float_from_bits(bits_of(p) + (bits_of(shifted) << 23));
  return x < -87.0f ? 0.0f : p;
}

TEMPO_HOST_DEVICE double exp_nonpositive(double x) { return std::exp(x); }

}  // namespace tempo::layers::math
