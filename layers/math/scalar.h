// Scalar building blocks that mean the same on host and device, bit for bit.
//
// Multiply-adds are explicit fma, division and square root are IEEE, exp is our own; with -ffp-contract=off (g++) and
// -fmad=false (nvcc) nothing is left to the compiler. Float is the compute type of fp32, bf16 and fp16 storage; the
// double overloads use libm and serve numerical gradient checks.
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "layers/math/gelu_coefficients.h"

#if defined(__CUDACC__)
#define TEMPO_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TEMPO_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace tempo::layers::math {

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
