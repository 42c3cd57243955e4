#include "layers/ops/attention_cuda.h"

#include "layers/ops/dispatch.h"
#include "layers/ops/dropout.h"
#include "layers/ops/launches.h"

namespace tempo::layers::cuda {
namespace {

/// One sequence: its parts of the batch's tensors, as views that ATen's batched products take without a copy.
struct Sequence {
  std::int64_t number;
  std::int64_t start;  // first slot in T
  std::int64_t slots;
  std::int64_t square;  // first element in the S x S tensors
  std::int64_t num_heads;

  /// [A, n, H/A] of a [T, H] tensor.
  at::Tensor heads(const at::Tensor& x_TH) const {
    return x_TH.narrow(0, start, slots).view({slots, num_heads, -1}).transpose(0, 1);
  }
  /// [A, n, n] of a flat tensor, from element `first` on.
  at::Tensor square_at(const at::Tensor& flat, std::int64_t first) const {
    return flat.narrow(0, first, num_heads * slots * slots).view({num_heads, slots, slots});
  }
  at::Tensor squares(const at::Tensor& flat) const { return square_at(flat, square); }
};

template <typename Run>
void for_each_sequence(const AttentionLayout& layout, Run&& run) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::int64_t square = 0;
  for (std::size_t b = 0; b + 1 < layout.host_starts.size(); ++b) {
    const std::int64_t slots = layout.host_starts[b + 1] - layout.host_starts[b];
    if (slots == 0) continue;
    run(Sequence{static_cast<std::int64_t>(b), layout.host_starts[b], slots, square, layout.num_heads});
    square += layout.num_heads * slots * slots;
  }
}

float score_scale(const at::Tensor& q, std::int64_t num_heads) {
  return 1.0f / std::sqrt(static_cast<float>(q.size(1) / num_heads));
}

}  // namespace

void attention(void* stream, const AttentionLayout& layout, const at::Tensor& lengths, const at::Tensor& ids,
               const math::DropoutKey& key, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& context, const at::Tensor& probabilities, const at::Tensor& mask,
               const at::Tensor& dropped) {
  const bool drops = dropped.defined();
  const std::int64_t* length = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  float* weights = probabilities.mutable_data_ptr<float>();
  for_each_sequence(layout, [&](const Sequence& sequence) {
    at::Tensor products = sequence.squares(probabilities);
    at::bmm_out(products, sequence.heads(q), sequence.heads(k).transpose(1, 2));
    attention_softmax(stream, {sequence.num_heads, sequence.slots, length + sequence.number, id + sequence.number}, key,
                      score_scale(q, layout.num_heads), weights + sequence.square,
                      drops ? mask.mutable_data_ptr<std::uint8_t>() + sequence.square : nullptr,
                      drops ? dropped.mutable_data_ptr<float>() + sequence.square : nullptr);
    at::Tensor out = sequence.heads(context);
    at::bmm_out(out, sequence.squares(drops ? dropped : probabilities), sequence.heads(v));
  });
}

void attention_backward(void* stream, const AttentionLayout& layout, const AttentionKept& kept, double drop_probability,
                        const at::Tensor& grad_q, const at::Tensor& grad_k, const at::Tensor& grad_v,
                        const at::Tensor& scratch) {
  const at::Tensor mask = kept.mask.value_or(at::Tensor());
  const at::Tensor used = mask.defined() ? *kept.dropped : kept.probabilities;  // what multiplied v
  const float keep_scale = dropout_key({drop_probability, 0, 0, 0}).scale();
  const float* weights = kept.probabilities.const_data_ptr<float>();
  for_each_sequence(layout, [&](const Sequence& sequence) {
    const at::Tensor context_grad = sequence.heads(kept.grad);
    at::Tensor to_v = sequence.heads(grad_v);
    at::bmm_out(to_v, sequence.squares(used).transpose(1, 2), context_grad);
    at::Tensor products_grad = sequence.square_at(scratch, 0);
    at::bmm_out(products_grad, context_grad, sequence.heads(kept.v).transpose(1, 2));
    attention_score_grad(stream, sequence.num_heads * sequence.slots, sequence.slots, weights + sequence.square,
                         mask.defined() ? mask.const_data_ptr<std::uint8_t>() + sequence.square : nullptr, keep_scale,
                         score_scale(kept.q, layout.num_heads), scratch.mutable_data_ptr<float>());
    at::Tensor to_q = sequence.heads(grad_q);
    at::bmm_out(to_q, products_grad, sequence.heads(kept.k));
    at::Tensor to_k = sequence.heads(grad_k);
    at::bmm_out(to_k, products_grad.transpose(1, 2), sequence.heads(kept.q));
  });
}

}  // namespace tempo::layers::cuda
