#include <vector>

#include "layers/math/softmax.h"
#include "layers/ops/attention_cuda.h"
#include "layers/ops/cpu_loops.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/dropout.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

// Query rows a thread carries from scores to context at a time, so that they stay in its cache: 128 x 512 floats are 256 KiB.
constexpr std::int64_t kQueryRows = 128;

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
TEMPO_INLINE void softmax_loop(T* scores, T scale, std::int64_t size) {
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
  const T inverse = T{1} / total.sum();
  for (std::int64_t i = 0; i < size; ++i) scores[i] *= inverse;
}

template <typename T>
TEMPO_INLINE void drop_loop(const T* probabilities, const std::uint16_t* bits, std::uint32_t threshold, T scale,
                            std::int64_t size, T* dropped, std::uint8_t* mask) {
  for (std::int64_t i = 0; i < size; ++i) {
    const bool keep = bits[i] < threshold;
    mask[i] = keep;
    dropped[i] = keep ? probabilities[i] * scale : T{0};
  }
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

#define TEMPO_ATTENTION_LOOPS(T, CLONES)                                                                             \
  CLONES void softmax_row(T* scores, T scale, std::int64_t size) { softmax_loop(scores, scale, size); }              \
  CLONES void drop_row(const T* probabilities, const std::uint16_t* bits, std::uint32_t threshold, T scale,          \
                       std::int64_t size, T* dropped, std::uint8_t* mask) {                                          \
    drop_loop(probabilities, bits, threshold, scale, size, dropped, mask);                                           \
  }                                                                                                                  \
  CLONES void score_grad_row(T* grad, const T* probabilities, const std::uint8_t* mask, T keep_scale, T score_scale, \
                             std::int64_t size) {                                                                    \
    score_grad_loop(grad, probabilities, mask, keep_scale, score_scale, size);                                       \
  }

TEMPO_ATTENTION_LOOPS(float, TEMPO_VECTORISED)
TEMPO_ATTENTION_LOOPS(double, )

/// Elements of the S x S tensors before each sequence: heads x the sum of squared slot counts.
std::vector<std::int64_t> square_offsets(c10::IntArrayRef host_starts, std::int64_t num_heads) {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t b = 0; b + 1 < host_starts.size(); ++b) {
    const std::int64_t slots = host_starts[b + 1] - host_starts[b];
    offsets.push_back(offsets.back() + num_heads * slots * slots);
  }
  return offsets;
}

std::int64_t max_slots(c10::IntArrayRef host_starts) {
  std::int64_t largest = 0;
  for (std::size_t b = 0; b + 1 < host_starts.size(); ++b)
    largest = std::max(largest, host_starts[b + 1] - host_starts[b]);
  return largest;
}

/// One head of one sequence: views of its rows and columns in the big tensors.
template <typename T>
struct Head {
  std::int64_t start;   // first slot of the sequence in T
  std::int64_t length;  // real tokens
  std::int64_t slots;   // row stride of the S x S tensors
  std::int64_t square;  // offset of this head's S x S part
  std::int64_t hidden;  // row stride of q, k, v
  std::int64_t column;  // first column of the head
  std::int64_t head_size;
  at::TensorOptions options;

  /// Rows [first, first + count) of this head in a [T, H] tensor.
  at::Tensor rows(T* data, std::int64_t first, std::int64_t count) const {
    return at::from_blob(data + (start + first) * hidden + column, {count, head_size}, {hidden, 1}, options);
  }
  at::Tensor rows(const T* data, std::int64_t first, std::int64_t count) const {
    return rows(const_cast<T*>(data), first, count);  // read only: ATen has no view of const memory
  }
  /// Rows of this head's S x S part, real keys only.
  at::Tensor square_rows(T* data, std::int64_t first, std::int64_t count) const {
    return at::from_blob(data + square + first * slots, {count, length}, {slots, 1}, options);
  }
};

/// Calls run(head number, sequence number, Head) for every head of every sequence, heads of one sequence in parallel.
template <typename T, typename Run>
void for_each_head(const at::Tensor& q, const at::Tensor& lengths, c10::IntArrayRef host_starts, std::int64_t num_heads,
                   Run&& run) {
  const std::int64_t hidden = q.size(1);
  const std::vector<std::int64_t> offsets = square_offsets(host_starts, num_heads);
  const std::int64_t* length = lengths.const_data_ptr<std::int64_t>();
  for (std::size_t b = 0; b + 1 < host_starts.size(); ++b) {
    const std::int64_t slots = host_starts[b + 1] - host_starts[b];
    at::parallel_for(0, num_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (std::int64_t h = begin; h < end; ++h) {
        run(h, b,
            Head<T>{host_starts[b], length[b], slots, offsets[b] + h * slots * slots, hidden, h * (hidden / num_heads),
                    hidden / num_heads, q.options()});
      }
    });
  }
}

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, c10::IntArrayRef host_starts,
                  std::int64_t num_heads) {
  TORCH_CHECK(q.dim() == 2 && q.sizes() == k.sizes() && q.sizes() == v.sizes(), "attention: q ", q.sizes(), ", k ",
              k.sizes(), ", v ", v.sizes(), " must be [T, H] alike");
  TORCH_CHECK(num_heads > 0 && q.size(1) % num_heads == 0, "attention: hidden size ", q.size(1),
              " does not divide into ", num_heads, " heads");
  TORCH_CHECK(!host_starts.empty() && host_starts.front() == 0 && host_starts.back() == q.size(0),
              "attention: sequence starts must run from 0 to the number of slots, ", q.size(0));
}

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

FourTensors attention_kernel(const at::Tensor& q_any, const at::Tensor& k_any, const at::Tensor& v_any,
                             const at::Tensor& lengths, const at::Tensor& ids, c10::IntArrayRef host_starts,
                             std::int64_t num_heads, double drop_probability, std::int64_t seed, std::int64_t step,
                             std::int64_t site) {
  check_shapes(q_any, k_any, v_any, host_starts, num_heads);
  check_contiguous("attention", {lengths, ids});
  const at::Tensor q = q_any.contiguous();
  const at::Tensor k = k_any.contiguous();
  const at::Tensor v = v_any.contiguous();
  const bool drops = drop_probability > 0;
  const math::DropoutKey key = dropout_key({drop_probability, static_cast<std::uint64_t>(seed), step, site});
  const std::int64_t num_squares = square_offsets(host_starts, num_heads).back();
  at::Tensor context = at::empty_like(q);
  at::Tensor probabilities = at::empty({num_squares}, q.options());
  at::Tensor mask = drops ? at::empty({num_squares}, q.options().dtype(at::kByte)) : at::Tensor();
  at::Tensor dropped = drops ? at::empty({num_squares}, q.options()) : at::Tensor();
  const auto cpu = [&] {
    for_element_type(q, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* q_data = q.const_data_ptr<T>();
      const T* k_data = k.const_data_ptr<T>();
      const T* v_data = v.const_data_ptr<T>();
      const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
      T* context_data = context.mutable_data_ptr<T>();
      T* weights = probabilities.mutable_data_ptr<T>();
      T* used = drops ? dropped.mutable_data_ptr<T>() : weights;  // what multiplies v
      std::uint8_t* mask_data = drops ? mask.mutable_data_ptr<std::uint8_t>() : nullptr;
      for_each_head<T>(q, lengths, host_starts, num_heads, [&](std::int64_t h, std::size_t b, const Head<T>& head) {
        const T scale = T{1} / std::sqrt(static_cast<T>(head.head_size));
        const at::Tensor keys = head.rows(k_data, 0, head.length);
        const at::Tensor values = head.rows(v_data, 0, head.length);
        std::vector<std::uint16_t> bits((head.length + 7) / 8 * 8);
        for (std::int64_t first = 0; first < head.length; first += kQueryRows) {
          const std::int64_t count = std::min(kQueryRows, head.length - first);
          at::Tensor scores = head.square_rows(weights, first, count);
          at::mm_out(scores, head.rows(q_data, first, count), keys.t());
          for (std::int64_t r = 0; r < count; ++r) {
            const std::int64_t at = head.square + (first + r) * head.slots;
            softmax_row(weights + at, scale, head.length);
            if (!drops) continue;
            dropout_row_bits(key, static_cast<std::uint32_t>(h), static_cast<std::uint32_t>(first + r),
                             static_cast<std::uint32_t>(id[b]), head.length, bits.data());
            drop_row(weights + at, bits.data(), key.threshold, static_cast<T>(key.scale()), head.length, used + at,
                     mask_data + at);
          }
          at::Tensor out = head.rows(context_data, first, count);
          at::mm_out(out, head.square_rows(used, first, count), values);
        }
        head.rows(context_data, head.length, head.slots - head.length).zero_();
      });
    });
  };
  on_device(q, cpu, [&](void* stream) {
    cuda::attention(stream, {host_starts, num_heads}, lengths, ids, key, q, k, v, context, probabilities, mask,
                    dropped);
  });
  return {context, probabilities, mask, dropped};
}

ThreeTensors attention_backward_kernel(const at::Tensor& grad_any, const at::Tensor& q_any, const at::Tensor& k_any,
                                       const at::Tensor& v_any, const at::Tensor& probabilities,
                                       const std::optional<at::Tensor>& mask, const std::optional<at::Tensor>& dropped,
                                       const at::Tensor& lengths, c10::IntArrayRef host_starts, std::int64_t num_heads,
                                       double drop_probability) {
  const at::Tensor grad = grad_any.contiguous();
  const at::Tensor q = q_any.contiguous();
  const at::Tensor k = k_any.contiguous();
  const at::Tensor v = v_any.contiguous();
  at::Tensor grad_q = at::empty_like(q);
  at::Tensor grad_k = at::empty_like(k);
  at::Tensor grad_v = at::empty_like(v);
  // The gradient of one sequence's scores; the heads of a sequence run side by side.
  const std::int64_t slots = max_slots(host_starts);
  at::Tensor scratch = at::empty({num_heads * slots * slots}, q.options());
  const auto cpu = [&] {
    for_element_type(q, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const bool drops = mask.has_value() && mask->defined();
      const T* grad_data = grad.const_data_ptr<T>();
      const T* q_data = q.const_data_ptr<T>();
      const T* k_data = k.const_data_ptr<T>();
      const T* v_data = v.const_data_ptr<T>();
      T* weights = const_cast<T*>(probabilities.const_data_ptr<T>());  // read only, through views
      T* used = drops ? const_cast<T*>(dropped->const_data_ptr<T>()) : weights;
      const std::uint8_t* mask_data = drops ? mask->const_data_ptr<std::uint8_t>() : nullptr;
      const T keep_scale = static_cast<T>(dropout_key({drop_probability, 0, 0, 0}).scale());
      T* to_q = grad_q.mutable_data_ptr<T>();
      T* to_k = grad_k.mutable_data_ptr<T>();
      T* to_v = grad_v.mutable_data_ptr<T>();
      T* scratch_data = scratch.mutable_data_ptr<T>();
      for_each_head<T>(q, lengths, host_starts, num_heads, [&](std::int64_t h, std::size_t, const Head<T>& head) {
        const T score_scale = T{1} / std::sqrt(static_cast<T>(head.head_size));
        at::Tensor keys_grad = head.rows(to_k, 0, head.length);
        at::Tensor values_grad = head.rows(to_v, 0, head.length);
        for (std::int64_t first = 0; first < head.length; first += kQueryRows) {
          const std::int64_t count = std::min(kQueryRows, head.length - first);
          T* score_grads = scratch_data + h * slots * slots;
          at::Tensor score_grad = at::from_blob(score_grads, {count, head.length}, q.options());
          const at::Tensor context_grad = head.rows(grad_data, first, count);
          at::mm_out(score_grad, context_grad, head.rows(v_data, 0, head.length).t());
          for (std::int64_t r = 0; r < count; ++r) {
            const std::int64_t at = head.square + (first + r) * head.slots;
            score_grad_row(score_grads + r * head.length, weights + at, drops ? mask_data + at : nullptr, keep_scale,
                           score_scale, head.length);
          }
          at::Tensor query_grad = head.rows(to_q, first, count);
          at::mm_out(query_grad, score_grad, head.rows(k_data, 0, head.length));
          const double keep_sum = first == 0 ? 0 : 1;
          at::addmm_out(keys_grad, keys_grad, score_grad.t(), head.rows(q_data, first, count), keep_sum);
          at::addmm_out(values_grad, values_grad, head.square_rows(used, first, count).t(), context_grad, keep_sum);
        }
        for (T* padded : {to_q, to_k, to_v}) head.rows(padded, head.length, head.slots - head.length).zero_();
      });
    });
  };
  on_device(q, cpu, [&](void* stream) {
    cuda::attention_backward(stream, {host_starts, num_heads}, {grad, q, k, v, probabilities, mask, dropped},
                             drop_probability, grad_q, grad_k, grad_v, scratch);
  });
  return {grad_q, grad_k, grad_v};
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::int64_t num_heads, const Sequences& sequences, const DropoutSite& site) {
    auto [output, probabilities, mask, dropped] =
        TEMPO_CALL(attention, q, k, v, sequences.lengths, sequences.ids, sequences.host_starts, num_heads,
                   site.drop_probability, static_cast<std::int64_t>(site.seed), site.step, site.site);
    context->save_for_backward({q, k, v, probabilities, mask, dropped, sequences.lengths});
    context->saved_data["host_starts"] = sequences.host_starts;
    context->saved_data["num_heads"] = num_heads;
    context->saved_data["drop_probability"] = site.drop_probability;
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("attention");
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> host_starts = context->saved_data["host_starts"].toIntVector();
    auto [grad_q, grad_k, grad_v] = TEMPO_CALL(
        attention_backward, grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], host_starts,
        context->saved_data["num_heads"].toInt(), context->saved_data["drop_probability"].toDouble());
    return {grad_q, grad_k, grad_v, {}, {}, {}};
  }
};

TEMPO_REGISTER(attention)
TEMPO_REGISTER(attention_backward)

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t num_heads,
                     const Sequences& sequences, const DropoutSite& site) {
  return AttentionFunction::apply(q, k, v, num_heads, sequences, site);
}

}  // namespace tempo::layers
