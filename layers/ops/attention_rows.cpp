#include "layers/ops/attention_rows.h"

#include <cmath>
#include <limits>

#include "layers/math/softmax.h"
#include "layers/ops/cpu_loops.h"

namespace tempo::layers {
namespace {

template <typename T>
TEMPO_INLINE T scale_and_max(T* scores, T scale, std::int64_t size) {
  constexpr int kLanes = Lanes<T>::kCount;
  T lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = -std::numeric_limits<T>::infinity();
  const std::int64_t whole = size - size % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const T scaled = scores[i + l] * scale;
      scores[i + l] = scaled;
      lane[l] = scaled > lane[l] ? scaled : lane[l];
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    scores[i] *= scale;
    lane[i - whole] = scores[i] > lane[i - whole] ? scores[i] : lane[i - whole];
  }
  for (int l = 1; l < kLanes; ++l) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  return lane[0];
}

template <typename T>
TEMPO_INLINE T softmax_loop(T* scores, T scale, std::int64_t size) {
  constexpr int kLanes = Lanes<T>::kCount;
  const T row_max = scale_and_max(scores, scale, size);
  const std::int64_t whole = size - size % kLanes;
  Lanes<T> total;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      scores[i + l] = math::softmax_weight(scores[i + l], row_max);
      total.lane[l] += scores[i + l];
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    scores[i] = math::softmax_weight(scores[i], row_max);
    total.lane[i - whole] += scores[i];
  }
  const T sum = total.sum();
  const T inverse = T{1} / sum;
  for (std::int64_t i = 0; i < size; ++i) scores[i] *= inverse;
  return row_max + std::log(sum);
}

template <typename T>
TEMPO_INLINE void softmax_again_loop(T* scores, T scale, T log_sum_exp, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) scores[i] = math::softmax_weight(scores[i] * scale, log_sum_exp);
}

template <typename T>
TEMPO_INLINE void drop_loop(const T* probabilities, const std::uint8_t* mask, T scale, std::int64_t size, T* dropped) {
  for (std::int64_t i = 0; i < size; ++i) dropped[i] = mask[i] != 0 ? probabilities[i] * scale : T{0};
}

/// grad: in, the gradient of the dropped probabilities; out, that of the unscaled scores. `mask` may be null.
template <typename T>
TEMPO_INLINE void score_grad_loop(T* grad, const T* probabilities, const std::uint8_t* mask, T keep_scale,
                                  T score_scale, std::int64_t size) {
  constexpr int kLanes = Lanes<T>::kCount;
  if (mask != nullptr) {
    for (std::int64_t i = 0; i < size; ++i) grad[i] = mask[i] != 0 ? grad[i] * keep_scale : T{0};
  }
  const std::int64_t whole = size - size % kLanes;
  Lanes<T> dot;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) dot.lane[l] = std::fma(grad[i + l], probabilities[i + l], dot.lane[l]);
  }
  for (std::int64_t i = whole; i < size; ++i)
    dot.lane[i - whole] = std::fma(grad[i], probabilities[i], dot.lane[i - whole]);
  const T row_dot = dot.sum();
  for (std::int64_t i = 0; i < size; ++i)
    grad[i] = math::softmax_grad(probabilities[i], grad[i], row_dot) * score_scale;
}

}  // namespace

#define TEMPO_ATTENTION_ROWS(T, CLONES)                                                                              \
  CLONES T softmax_row(T* scores, T scale, std::int64_t size) { return softmax_loop(scores, scale, size); }          \
  CLONES void softmax_row_again(T* scores, T scale, T log_sum_exp, std::int64_t size) {                              \
    softmax_again_loop(scores, scale, log_sum_exp, size);                                                            \
  }                                                                                                                  \
  CLONES void drop_row(const T* probabilities, const std::uint8_t* mask, T scale, std::int64_t size, T* dropped) {   \
    drop_loop(probabilities, mask, scale, size, dropped);                                                            \
  }                                                                                                                  \
  CLONES void score_grad_row(T* grad, const T* probabilities, const std::uint8_t* mask, T keep_scale, T score_scale, \
                             std::int64_t size) {                                                                    \
    score_grad_loop(grad, probabilities, mask, keep_scale, score_scale, size);                                       \
  }

TEMPO_ATTENTION_ROWS(float, TEMPO_VECTORISED)
TEMPO_ATTENTION_ROWS(double, )

}  // namespace tempo::layers
