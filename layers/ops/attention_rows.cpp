#include "layers/ops/attention_rows.h"

#include <cmath>
#include <limits>

#include "layers/math/softmax.h"
#include "layers/ops/cpu_loops.h"

namespace tempo::layers {
namespace {

using math::Compute;

/// The largest of the scores times `scale`.
template <typename T>
TEMPO_INLINE Compute<T> scaled_max(const T* scores, Compute<T> scale, std::int64_t size) {
  using C = Compute<T>;
  constexpr int kLanes = Lanes<C>::kCount;
  C lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = -std::numeric_limits<C>::infinity();
  const std::int64_t whole = size - size % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const C scaled = scores[i + l] * scale;
      lane[l] = scaled > lane[l] ? scaled : lane[l];
    }
  }
  for (std::int64_t i = whole; i < size; ++i) {
    const C scaled = scores[i] * scale;
    lane[i - whole] = scaled > lane[i - whole] ? scaled : lane[i - whole];
  }
  for (int l = 1; l < kLanes; ++l) lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
  return lane[0];
}

template <typename T>
TEMPO_INLINE Compute<T> softmax_loop(T* scores, Compute<T> scale, std::int64_t size) {
  using C = Compute<T>;
  constexpr int kLanes = Lanes<C>::kCount;
  const C row_max = scaled_max(scores, scale, size);
  // An exponential is stored on the way only where that does not round it.
  const auto weight = [&](std::int64_t i) __attribute__((always_inline)) {
    const C exact = math::softmax_weight(scores[i] * scale, row_max);
    if constexpr (!math::kStoringRounds<T>) scores[i] = exact;
    return exact;
  };
  const std::int64_t whole = size - size % kLanes;
  Lanes<C> total;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) total.lane[l] += weight(i + l);
  }
  for (std::int64_t i = whole; i < size; ++i) total.lane[i - whole] += weight(i);
  const C sum = total.sum();
  const C inverse = C{1} / sum;
  for (std::int64_t i = 0; i < size; ++i) {
    if constexpr (math::kStoringRounds<T>) {
      scores[i] = weight(i) * inverse;
    } else {
      scores[i] *= inverse;
    }
  }
  return row_max + std::log(sum);
}

template <typename T>
TEMPO_INLINE void softmax_again_loop(T* scores, Compute<T> scale, Compute<T> log_sum_exp, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) scores[i] = math::softmax_weight(scores[i] * scale, log_sum_exp);
}

template <typename T>
TEMPO_INLINE void softmax_again_signed_loop(T* scores, Compute<T> scale, Compute<T> log_sum_exp, const RowDraw& draw,
                                            std::int64_t size, T* dropped) {
  using C = Compute<T>;
  const std::uint16_t* const bits = draw.bits;
  const std::uint32_t threshold = draw.threshold;
  const C keep_scale{draw.scale};
  for (std::int64_t i = 0; i < size; ++i) {
    const C probability{T(math::softmax_weight(scores[i] * scale, log_sum_exp))};  // as it was when it was dropped
    const C scaled = probability * keep_scale;
    const bool is_kept = bits[i] < threshold;
    scores[i] = is_kept ? probability : -probability;
    dropped[i] = is_kept ? scaled : C{0};
  }
}

template <typename T>
TEMPO_INLINE void drop_loop(const T* probabilities, const std::uint8_t* mask, Compute<T> scale, std::int64_t size,
                            T* dropped) {
  for (std::int64_t i = 0; i < size; ++i) {
    const Compute<T> scaled = probabilities[i] * scale;
    dropped[i] = mask[i] != 0 ? scaled : Compute<T>{0};
  }
}

/// grad: in, the gradient of the probabilities; out, that of the unscaled scores.
template <typename T, typename Probability>
TEMPO_INLINE void score_grad_loop(T* grad, const Probability probability, Compute<T> score_scale, std::int64_t size) {
  using C = Compute<T>;
  constexpr int kLanes = Lanes<C>::kCount;
  const std::int64_t whole = size - size % kLanes;
  Lanes<C> dot;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) dot.lane[l] = std::fma(C{grad[i + l]}, probability(i + l), dot.lane[l]);
  }
  for (std::int64_t i = whole; i < size; ++i)
    dot.lane[i - whole] = std::fma(C{grad[i]}, probability(i), dot.lane[i - whole]);
  const C row_dot = dot.sum();
  for (std::int64_t i = 0; i < size; ++i)
    grad[i] = math::softmax_grad(probability(i), C{grad[i]}, row_dot) * score_scale;
}

template <typename T>
struct Plain {
  const T* probabilities;
  TEMPO_INLINE Compute<T> operator()(std::int64_t i) const { return Compute<T>{probabilities[i]}; }
};

template <typename T>
struct Signed {
  const T* weights;
  TEMPO_INLINE Compute<T> operator()(std::int64_t i) const { return std::fabs(Compute<T>{weights[i]}); }
};

template <typename T>
TEMPO_INLINE void score_grad(T* grad, const T* probabilities, const std::uint8_t* mask, Compute<T> keep_scale,
                             Compute<T> score_scale, std::int64_t size) {
  if (mask != nullptr) drop_loop(grad, mask, keep_scale, size, grad);
  score_grad_loop(grad, Plain<T>{probabilities}, score_scale, size);
}

/// A probability of 0 counts as dropped, which makes no difference: the gradient of its score is 0 either way.
template <typename T>
TEMPO_INLINE void score_grad_signed(T* grad, const T* weights, Compute<T> keep_scale, Compute<T> score_scale,
                                    std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    const Compute<T> scaled = grad[i] * keep_scale;
    grad[i] = Compute<T>{weights[i]} > 0 ? scaled : Compute<T>{0};
  }
  score_grad_loop(grad, Signed<T>{weights}, score_scale, size);
}

}  // namespace

#define TEMPO_ATTENTION_ROWS(T, CLONES)                                                                          \
  CLONES Compute<T> softmax_row(T* scores, Compute<T> scale, std::int64_t size) {                                \
    return softmax_loop(scores, scale, size);                                                                    \
  }                                                                                                              \
  CLONES void softmax_row_again(T* scores, Compute<T> scale, Compute<T> log_sum_exp, std::int64_t size) {        \
    softmax_again_loop(scores, scale, log_sum_exp, size);                                                        \
  }                                                                                                              \
  CLONES void softmax_row_again_signed(T* scores, Compute<T> scale, Compute<T> log_sum_exp, const RowDraw& draw, \
                                       std::int64_t size, T* dropped) {                                          \
    softmax_again_signed_loop(scores, scale, log_sum_exp, draw, size, dropped);                                  \
  }                                                                                                              \
  CLONES void drop_row(const T* probabilities, const std::uint8_t* mask, Compute<T> scale, std::int64_t size,    \
                       T* dropped) {                                                                             \
    drop_loop(probabilities, mask, scale, size, dropped);                                                        \
  }                                                                                                              \
  CLONES void score_grad_row(T* grad, const T* probabilities, const std::uint8_t* mask, Compute<T> keep_scale,   \
                             Compute<T> score_scale, std::int64_t size) {                                        \
    score_grad(grad, probabilities, mask, keep_scale, score_scale, size);                                        \
  }                                                                                                              \
  CLONES void score_grad_row_signed(T* grad, const T* weights, Compute<T> keep_scale, Compute<T> score_scale,    \
                                    std::int64_t size) {                                                         \
    score_grad_signed(grad, weights, keep_scale, score_scale, size);                                             \
  }

TEMPO_ATTENTION_ROWS(float, TEMPO_VECTORISED)
TEMPO_ATTENTION_ROWS(at::BFloat16, TEMPO_VECTORISED)
TEMPO_ATTENTION_ROWS(at::Half, TEMPO_VECTORISED)
TEMPO_ATTENTION_ROWS(double, )

}  // namespace tempo::layers
