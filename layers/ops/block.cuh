// What kernels share: the size of a block, the loop over elements, sums and maxima over a block.
//
// A reduction has one fixed tree, the lanes of a warp by shuffles and then the warps in order, so it gives the same bits in
// every run.
// Not for: arithmetic (layers/math). Thread rule: device code; every thread of a block calls a reduction.
#pragma once

#include <cstdint>

// The emulator of the tests (tests/support/cuda_emulation.h) defines its own.
#if defined(__CUDACC__)
#define TEMPO_SHARED(type, name, count) __shared__ type name[count]
#endif

namespace tempo::layers::cuda {

inline constexpr int kThreads = 256;  // of every block
inline constexpr int kWarp = 32;

/// The elements of a thread are first_element(), + element_stride(), ...
inline __device__ std::int64_t first_element() { return std::int64_t{blockIdx.x} * kThreads + threadIdx.x; }
inline __device__ std::int64_t element_stride() { return std::int64_t{gridDim.x} * kThreads; }

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Largest {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

/// Combines the values of a block's threads; every thread gets the result. What one wrote before, all see after.
template <typename Combine, typename T>
__device__ T reduce_block(T value) {
  constexpr int kWarps = kThreads / kWarp;
  const Combine combine;
  TEMPO_SHARED(T, of_warp, kWarps);
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(~0u, value, distance));
  __syncthreads();  // all have read the result of the reduction before this one
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = of_warp[0];
  for (int warp = 1; warp < kWarps; ++warp) result = combine(result, of_warp[warp]);
  return result;
}

template <typename T>
__device__ T block_sum(T value) {
  return reduce_block<Sum>(value);
}

template <typename T>
__device__ T block_max(T value) {
  return reduce_block<Largest>(value);
}

}  // namespace tempo::layers::cuda
