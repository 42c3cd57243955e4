#include <algorithm>
#include <vector>

#include "layers/ops/attention_cuda.h"
#include "layers/ops/attention_heads.h"
#include "layers/ops/attention_rows.h"
#include "layers/ops/dispatch.h"

namespace tempo::layers {
namespace {

using math::Compute;

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const HeadLayout& layout) {
  TORCH_CHECK(q.dim() == 2 && q.sizes() == k.sizes() && q.sizes() == v.sizes(), "attention: q ", q.sizes(), ", k ",
              k.sizes(), ", v ", v.sizes(), " must be [T, H] alike");
  TORCH_CHECK(layout.num_heads > 0 && q.size(1) % layout.num_heads == 0, "attention: hidden size ", q.size(1),
              " does not divide into ", layout.num_heads, " heads");
  TORCH_CHECK(!layout.host_starts.empty() && layout.host_starts.front() == 0 && layout.host_starts.back() == q.size(0),
              "attention: sequence starts must run from 0 to the number of slots, ", q.size(0));
  TORCH_CHECK(layout.keep != AttentionKeep::kDropped || layout.mask == MaskKeep::kBytes,
              "attention: what keeps the dropped copy keeps its mask as bytes");
  TORCH_CHECK(layout.keep != AttentionKeep::kLogSumExp || layout.mask == MaskKeep::kNothing,
              "attention: what keeps no probabilities keeps no mask");
}

/// Zeros in the rows of a chunk beyond the keys that their queries attend to: products run over `keys` of them.
template <typename T>
void clear_rest(T* row, std::int64_t attended, std::int64_t keys) {
  std::fill(row + attended, row + keys, T{0});
}

template <typename T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

using FiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Where one call of the forward pass reads and writes; pointers are null where the layout has no such tensor.
template <typename T>
struct ForwardData {
  const T *q, *k, *v;
  T *context, *probabilities, *dropped, *scratch;
  Compute<T>* log_sum_exp;
  std::uint8_t* mask;
};

template <typename T>
void forward_head(const HeadLayout& layout, const math::DropoutKey& key, bool drops, const Head<T>& head,
                  const ForwardData<T>& data) {
  const auto scale = Compute<T>{1} / std::sqrt(static_cast<Compute<T>>(head.head_size));
  MaskRow mask(layout, key, head.slots);
  T* own = data.scratch == nullptr ? nullptr : data.scratch + at::get_thread_num() * layout.chunk_size();
  for (std::int64_t first = 0; first < head.length; first += kQueryRows) {
    const std::int64_t count = std::min(kQueryRows, head.length - first);
    const std::int64_t keys = head.keys_of(first + count - 1);
    T* weights = layout.keeps_squares() ? data.probabilities + head.square + first * head.slots : own;
    T* used = weights;  // what multiplies v
    if (drops && data.dropped != nullptr) used = data.dropped + head.square + first * head.slots;
    if (drops && data.dropped == nullptr) used = layout.keeps_squares() ? own : weights;
    at::Tensor scores = head.square_rows(weights, count, keys);
    at::mm_out(scores, head.rows(data.q, first, count), head.rows(data.k, 0, keys).t());
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t attended = head.keys_of(first + r);
      T* row = weights + r * head.slots;
      const Compute<T> log_sum_exp = softmax_row(row, scale, attended);
      if (data.log_sum_exp != nullptr) data.log_sum_exp[head.statistic + first + r] = log_sum_exp;
      clear_rest(row, attended, keys);
      if (!drops) continue;
      drop_row(row, mask.draw(head, first + r, attended, data.mask), static_cast<Compute<T>>(key.scale()), attended,
               used + r * head.slots);
      clear_rest(used + r * head.slots, attended, keys);
    }
    at::Tensor out = head.rows(data.context, first, count);
    at::mm_out(out, head.square_rows(used, count, keys), head.rows(data.v, 0, keys));
  }
  head.rows(data.context, head.length, head.slots - head.length).zero_();
}

FiveTensors attention_kernel(const at::Tensor& q_any, const at::Tensor& k_any, const at::Tensor& v_any,
                             const at::Tensor& lengths, const at::Tensor& ids, c10::IntArrayRef host_starts,
                             std::int64_t num_heads, bool is_causal, std::int64_t keep, std::int64_t mask_keep,
                             double drop_probability, std::int64_t seed, std::int64_t step, std::int64_t site) {
  const HeadLayout layout{host_starts, num_heads, is_causal, AttentionKeep{keep}, MaskKeep{mask_keep}};
  check_shapes(q_any, k_any, v_any, layout);
  check_contiguous("attention", {lengths, ids});
  const at::Tensor q = q_any.contiguous();
  const at::Tensor k = k_any.contiguous();
  const at::Tensor v = v_any.contiguous();
  const bool drops = drop_probability > 0;
  const math::DropoutKey key = dropout_key({drop_probability, static_cast<std::uint64_t>(seed), step, site});
  const std::int64_t num_squares = layout.offsets([](std::int64_t slots) { return slots; }).back();
  const std::int64_t num_mask_bytes =
      layout.offsets([&](std::int64_t slots) { return layout.mask_bytes(slots); }).back();
  at::Tensor context = at::empty_like(q);
  at::Tensor probabilities, mask, dropped, log_sum_exp, scratch;
  if (layout.keeps_squares()) probabilities = at::empty({num_squares}, q.options());
  if (drops && layout.mask != MaskKeep::kNothing) mask = at::empty({num_mask_bytes}, q.options().dtype(at::kByte));
  if (drops && layout.keep == AttentionKeep::kDropped) dropped = at::empty({num_squares}, q.options());
  if (layout.keep == AttentionKeep::kLogSumExp) log_sum_exp = at::empty({num_heads * q.size(0)}, compute_options(q));
  if (layout.keep == AttentionKeep::kLogSumExp || (drops && layout.keep == AttentionKeep::kProbabilities))
    scratch = at::empty({layout.num_threads() * layout.chunk_size()}, q.options());
  const auto cpu = [&] {
    for_element_type(q, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const ForwardData<T> data{q.const_data_ptr<T>(),           k.const_data_ptr<T>(),
                                v.const_data_ptr<T>(),           context.mutable_data_ptr<T>(),
                                data_or_null<T>(probabilities),  data_or_null<T>(dropped),
                                data_or_null<T>(scratch),        data_or_null<Compute<T>>(log_sum_exp),
                                data_or_null<std::uint8_t>(mask)};
      for_each_head<T>(q, lengths, ids, layout,
                       [&](const Head<T>& head) { forward_head(layout, key, drops, head, data); });
    });
  };
  on_device(q, cpu, [&](void* stream) {
    TORCH_CHECK(layout.keep == AttentionKeep::kDropped && !is_causal,
                "attention: on CUDA there is only the form that keeps the dropped copy, without a causal mask");
    cuda::attention(stream, {host_starts, num_heads}, lengths, ids, key, q, k, v, context, probabilities, mask,
                    dropped);
  });
  return {context, probabilities, mask, dropped, log_sum_exp};
}

/// Where one call of the backward pass reads and writes.
template <typename T>
struct BackwardData {
  const T *grad, *q, *k, *v;
  const T *probabilities, *dropped;
  const Compute<T>* log_sum_exp;
  const std::uint8_t* mask;
  T *grad_q, *grad_k, *grad_v, *scratch;
};

template <typename T>
void backward_head(const HeadLayout& layout, const math::DropoutKey& key, bool drops, const Head<T>& head,
                   const BackwardData<T>& data) {
  const auto scale = Compute<T>{1} / std::sqrt(static_cast<Compute<T>>(head.head_size));
  MaskRow mask_row(layout, key, head.slots);
  const auto keep_scale = static_cast<Compute<T>>(key.scale());
  const std::int64_t num_buffers = layout.keeps_squares() ? 1 : 2;
  T* score_grads = data.scratch + at::get_thread_num() * num_buffers * layout.chunk_size();
  T* own = score_grads + layout.chunk_size();  // the second buffer
  for (std::int64_t first = 0; first < head.length; first += kQueryRows) {
    const std::int64_t count = std::min(kQueryRows, head.length - first);
    const std::int64_t keys = head.keys_of(first + count - 1);
    const at::Tensor queries = head.rows(data.q, first, count);
    const at::Tensor context_grad = head.rows(data.grad, first, count);
    T* weights = own;  // without kept ones: signed where they were dropped
    if (layout.keeps_squares()) {
      weights = const_cast<T*>(data.probabilities) + head.square + first * head.slots;  // read only, through views
    }
    T* used = weights;
    if (drops && data.dropped != nullptr) used = const_cast<T*>(data.dropped) + head.square + first * head.slots;
    if (drops && data.dropped == nullptr) used = score_grads;  // until they are needed
    if (!layout.keeps_squares()) {
      at::Tensor scores = head.square_rows(weights, count, keys);
      at::mm_out(scores, queries, head.rows(data.k, 0, keys).t());
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t attended = head.keys_of(first + r);
      T* row = weights + r * head.slots;
      T* used_row = used + r * head.slots;
      if (!layout.keeps_squares()) {
        const Compute<T> log_sum_exp = data.log_sum_exp[head.statistic + first + r];
        drops ? softmax_row_again_signed(row, scale, log_sum_exp, mask_row.draw(head, first + r, attended), attended,
                                         used_row)
              : softmax_row_again(row, scale, log_sum_exp, attended);
      } else if (used == score_grads) {
        drop_row(row, mask_row.read(head, first + r, attended, data.mask), keep_scale, attended, used_row);
      } else {
        continue;  // both were kept
      }
      clear_rest(used_row, attended, keys);
    }
    // Of a causal chunk's keys the last ones have no gradient yet.
    const std::int64_t known = first == 0 ? 0 : head.keys_of(first - 1);
    const auto add_product = [&](T* to, T* left, const at::Tensor& right) {
      if (known > 0) head.rows(to, known, keys - known).zero_();
      at::Tensor sum = head.rows(to, 0, keys);
      at::addmm_out(sum, sum, head.square_rows(left, count, keys).t(), right, known > 0 ? 1 : 0);
    };
    add_product(data.grad_v, used, context_grad);
    at::Tensor score_grad = head.square_rows(score_grads, count, keys);
    at::mm_out(score_grad, context_grad, head.rows(data.v, 0, keys).t());
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t attended = head.keys_of(first + r);
      T* grad_row = score_grads + r * head.slots;
      const T* row = weights + r * head.slots;
      if (drops && !layout.keeps_squares()) {
        score_grad_row_signed(grad_row, row, keep_scale, scale, attended);
      } else {
        const std::uint8_t* mask = drops ? mask_row.read(head, first + r, attended, data.mask) : nullptr;
        score_grad_row(grad_row, row, mask, keep_scale, scale, attended);
      }
      clear_rest(grad_row, attended, keys);
    }
    at::Tensor query_grad = head.rows(data.grad_q, first, count);
    at::mm_out(query_grad, score_grad, head.rows(data.k, 0, keys));
    add_product(data.grad_k, score_grads, queries);
  }
  for (T* padded : {data.grad_q, data.grad_k, data.grad_v})
    head.rows(padded, head.length, head.slots - head.length).zero_();
}

ThreeTensors attention_backward_kernel(const at::Tensor& grad_any, const at::Tensor& q_any, const at::Tensor& k_any,
                                       const at::Tensor& v_any, const std::optional<at::Tensor>& probabilities,
                                       const std::optional<at::Tensor>& mask, const std::optional<at::Tensor>& dropped,
                                       const std::optional<at::Tensor>& log_sum_exp, const at::Tensor& lengths,
                                       const at::Tensor& ids, c10::IntArrayRef host_starts, std::int64_t num_heads,
                                       bool is_causal, std::int64_t keep, std::int64_t mask_keep,
                                       double drop_probability, std::int64_t seed, std::int64_t step,
                                       std::int64_t site) {
  const HeadLayout layout{host_starts, num_heads, is_causal, AttentionKeep{keep}, MaskKeep{mask_keep}};
  const math::DropoutKey key = dropout_key({drop_probability, static_cast<std::uint64_t>(seed), step, site});
  const at::Tensor grad = grad_any.contiguous();
  const at::Tensor q = q_any.contiguous();
  const at::Tensor k = k_any.contiguous();
  const at::Tensor v = v_any.contiguous();
  at::Tensor grad_q = at::empty_like(q);
  at::Tensor grad_k = at::empty_like(k);
  at::Tensor grad_v = at::empty_like(v);
  // The gradient of one sequence's scores, as eager PyTorch has it; otherwise of the chunks at work.
  const std::int64_t num_buffers = layout.keeps_squares() ? 1 : 2;
  at::Tensor scratch =
      at::empty({layout.keep == AttentionKeep::kDropped ? num_heads * layout.max_slots() * layout.max_slots()
                                                        : layout.num_threads() * num_buffers * layout.chunk_size()},
                q.options());
  const auto cpu = [&] {
    for_element_type(q, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const BackwardData<T> data{grad.const_data_ptr<T>(),
                                 q.const_data_ptr<T>(),
                                 k.const_data_ptr<T>(),
                                 v.const_data_ptr<T>(),
                                 data_or_null<T>(probabilities.value_or(at::Tensor())),
                                 data_or_null<T>(dropped.value_or(at::Tensor())),
                                 data_or_null<Compute<T>>(log_sum_exp.value_or(at::Tensor())),
                                 data_or_null<std::uint8_t>(mask.value_or(at::Tensor())),
                                 grad_q.mutable_data_ptr<T>(),
                                 grad_k.mutable_data_ptr<T>(),
                                 grad_v.mutable_data_ptr<T>(),
                                 scratch.mutable_data_ptr<T>()};
      for_each_head<T>(q, lengths, ids, layout,
                       [&](const Head<T>& head) { backward_head(layout, key, drop_probability > 0, head, data); });
    });
  };
  on_device(q, cpu, [&](void* stream) {
    cuda::attention_backward(stream, {host_starts, num_heads}, {grad, q, k, v, *probabilities, mask, dropped},
                             drop_probability, grad_q, grad_k, grad_v, scratch);
  });
  return {grad_q, grad_k, grad_v};
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionOptions& options, const Sequences& sequences, const DropoutSite& site) {
    const auto keep = static_cast<std::int64_t>(options.keep);
    const auto mask_keep = static_cast<std::int64_t>(options.mask);
    const auto seed = static_cast<std::int64_t>(site.seed);
    auto [output, probabilities, mask, dropped, log_sum_exp] =
        TEMPO_CALL(attention, q, k, v, sequences.lengths, sequences.ids, sequences.host_starts, options.num_heads,
                   options.is_causal, keep, mask_keep, site.drop_probability, seed, site.step, site.site);
    context->save_for_backward({q, k, v, probabilities, mask, dropped, log_sum_exp, sequences.lengths, sequences.ids});
    context->saved_data["host_starts"] = sequences.host_starts;
    context->saved_data["options"] = std::vector<std::int64_t>{options.num_heads, options.is_causal, keep, mask_keep};
    save_site(site, *context);
    return output;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("attention");
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> host_starts = context->saved_data["host_starts"].toIntVector();
    const std::vector<std::int64_t> options = context->saved_data["options"].toIntVector();
    const DropoutSite site = saved_site(*context);
    auto [grad_q, grad_k, grad_v] =
        TEMPO_CALL(attention_backward, grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6],
                   saved[7], saved[8], host_starts, options[0], options[1] != 0, options[2], options[3],
                   site.drop_probability, static_cast<std::int64_t>(site.seed), site.step, site.site);
    return {grad_q, grad_k, grad_v, {}, {}, {}};
  }
};

TEMPO_REGISTER(attention)
TEMPO_REGISTER(attention_backward)

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options,
                     const Sequences& sequences, const DropoutSite& site) {
  if (site.drop_probability > 0) check_dropout_fits(sequences, /*channels=*/1, options.num_heads);
  return AttentionFunction::apply(q, k, v, options, sequences, site);
}

}  // namespace tempo::layers
