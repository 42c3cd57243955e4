// Attention on CUDA, sequence by sequence: ATen's batched products over the heads, our kernels between them.
//
// Lengths stay on the device, so products run over all slots of a sequence; padded queries and keys have probability 0 there
// (attention_kernels.cuh) and so add nothing. All values are fp32 on one device and contiguous. Nothing is allocated.
// Not for: checks and allocation (attention.cpp). Thread rule: as CUDA streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "layers/math/dropout.h"

namespace tempo::layers::cuda {

/// How sequences and heads lie in a batch. host_starts [B+1].
struct AttentionLayout {
  c10::IntArrayRef host_starts;
  std::int64_t num_heads;
};

/// lengths, ids [B] int64 on the device; q, k, v, context [T, H]; probabilities, mask, dropped flat, A n^2 elements per
/// sequence. `mask` and `dropped` are undefined where nothing is dropped. Fills context, probabilities, mask and dropped.
void attention(void* stream, const AttentionLayout& layout, const at::Tensor& lengths, const at::Tensor& ids,
               const math::DropoutKey& key, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& context, const at::Tensor& probabilities, const at::Tensor& mask,
               const at::Tensor& dropped);

/// What the forward pass kept, and the gradient of its context.
struct AttentionKept {
  at::Tensor grad, q, k, v, probabilities;
  std::optional<at::Tensor> mask, dropped;
};

/// Fills grad_q, grad_k and grad_v [T, H]. `scratch` has A n^2 elements for the longest sequence.
void attention_backward(void* stream, const AttentionLayout& layout, const AttentionKept& kept, double drop_probability,
                        const at::Tensor& grad_q, const at::Tensor& grad_k, const at::Tensor& grad_v,
                        const at::Tensor& scratch);

}  // namespace tempo::layers::cuda
