// What the CPU loops of the operators share: how they are vectorised, how rows are added, how work is cut.
//
// A loop is a free function compiled for three levels of x86-64 and chosen when the program starts (TEMPO_VECTORISED). It is
// called from inside at::parallel_for, never the other way round: a lambda inside such a function would be compiled for the
// lowest level only. A choice between results reads everything before it chooses: a load or product in one branch of it keeps
// g++ from vectorising. Sums use a fixed number of lanes, so that all levels and all numbers of threads give the same bits.
// Not for: arithmetic (layers/math). Thread rule: pure functions.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

// Sanitizers intercept the resolver before they are initialised; the sanitized build takes the lowest level.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define TEMPO_HAS_VERSIONS
#define TEMPO_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TEMPO_VECTORISED
#endif
#define TEMPO_INLINE inline __attribute__((always_inline))

namespace tempo::layers {

/// Elements a thread should get at least: below it starting the thread costs more than the loop.
inline constexpr std::int64_t kGrainElements = 32768;

inline constexpr std::int64_t grain_rows(std::int64_t row_size) {
  return row_size >= kGrainElements ? 1 : kGrainElements / (row_size > 0 ? row_size : 1);
}

/// Sixteen partial sums: a vector register of floats, or two, or four.
template <typename T>
struct Lanes {
  static constexpr int kCount = 16;
  T lane[kCount] = {};

  TEMPO_INLINE T sum() {
    for (int width = kCount / 2; width > 0; width /= 2) {
      for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
    }
    return lane[0];
  }
};

}  // namespace tempo::layers
