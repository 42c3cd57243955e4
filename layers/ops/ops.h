// The public contract of every operator: differentiable functions on tensors.
//
// Shapes: T token slots, B sequences, H hidden size, A heads, M gathered rows, V classes. Tensors are contiguous, of one
// floating type and on one device unless said otherwise; whatever breaks that is a caller's fault (TORCH_CHECK).
// Under each function stands what it keeps for the backward pass. Backward twice with retain_graph gives equal gradients;
// second derivatives are refused. On every device an operator allocates the same tensors, temporaries included, so that a
// step on the meta device has the memory of a real one.
//
// Not for: parameters or their names (modules.h). Thread rule: as ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "layers/math/gelu.h"

namespace tempo::layers {

using math::GeluForm;

/// Whether this program has kernels for CUDA; if not, operators refuse CUDA tensors.
bool has_cuda_kernels();

/// Where the sequences of a ragged batch lie (data/batch.h).
struct Sequences {
  at::Tensor starts;                      ///< [B+1] int64, on the device
  at::Tensor lengths;                     ///< [B] int64, real tokens
  at::Tensor ids;                         ///< [B] int64, example numbers: they key dropout
  std::vector<std::int64_t> host_starts;  ///< `starts` on the host: shapes must not wait for the device
};

/// One place in the model that drops elements, in one step (math/dropout.h says which). Probability 0 drops nothing.
struct DropoutSite {
  double drop_probability = 0;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t site = 0;
};

/// GELU of `x`, any shape. Keeps x. (Hendrycks & Gimpel 2016)
at::Tensor gelu(const at::Tensor& x, GeluForm form);

/// LayerNorm over the last dimension of z [T, H]. Keeps z, and mean and rstd [T]. (Ba et al. 2016)
at::Tensor layer_norm(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps);

/// Dropout of x [T, H], rows keyed by example and position. Keeps a mask of one byte per element.
at::Tensor dropout(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site);

/// residual + dropout(x), both [T, H], in one pass. Keeps a mask of one byte per element.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Sequences& sequences,
                       const DropoutSite& site);

/// x W^T + b: x [T, in], weight [out, in], bias [out]. Keeps x.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

struct QkvParameters {
  at::Tensor query_weight, query_bias, key_weight, key_bias, value_weight, value_bias;  // [H, H] and [H]
};

/// The three projections of x [T, H] that open attention, three parameters but one gradient for x. Keeps x once.
std::tuple<at::Tensor, at::Tensor, at::Tensor> qkv_linear(const at::Tensor& x, const QkvParameters& parameters);

/// Scaled dot-product attention (Vaswani et al. 2017, eq. 1) within each sequence; q, k, v [T, H], head a in columns
/// [a H/A, (a+1) H/A). Keys at or beyond a sequence's length get no weight; queries there give zeros.
/// Keeps q, k, v, the probabilities (A n^2 elements for a sequence of n slots), their mask (bytes) and dropped copy: what an
/// eager PyTorch attention keeps. Without dropout only the probabilities.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t num_heads,
                     const Sequences& sequences, const DropoutSite& site);

struct EmbeddingTables {
  at::Tensor word, position, token_type;  // [V, H], [P, H], [types, H]
};

/// Sum of three table rows for every slot -> [T, H]. ids are int64 [T] and trusted (data/shard.h checks them). Keeps the ids.
at::Tensor embedding_sum(const EmbeddingTables& tables, const at::Tensor& token_ids, const at::Tensor& position_ids,
                         const at::Tensor& token_types);

/// Rows `index` (int64 [M], may repeat) of x [T, H] -> [M, H]. Keeps the index.
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& index);

struct CrossEntropy {
  at::Tensor loss_sum;     ///< scalar: sum over labelled rows of -log softmax(logits)[label]
  at::Tensor num_correct;  ///< scalar int64: labelled rows whose largest logit is the label's; has no gradient
};

/// Cross-entropy of logits [M, V'] against labels int64 [M]; rows whose label is `ignore_label` count nothing. Only the first
/// `num_classes` <= V' columns take part: the others pad the vocabulary and get neither probability nor gradient.
/// Keeps the logits and one log-sum-exp per row.
CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& labels, std::int64_t num_classes,
                           std::int64_t ignore_label);

/// Sum of squares of each tensor's elements, added in double in an order that no number of threads changes -> float64 [tensors].
at::Tensor sums_of_squares(at::TensorList tensors);

/// What one optimizer step needs besides its tensors (math/optimizer.h).
struct AdamStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool bias_correction = true;
};

/// In place on fp32 parameters, moments and variances. `gradient_scale` is a float scalar tensor that every gradient is
/// multiplied by on the way (clipping). `count`, an int64 scalar tensor, is the number of this update, t, from 1; where it is 0
/// the step is skipped: nothing changes. The gradients are left as they are.
void adamw_step_(at::TensorList parameters, at::TensorList gradients, at::TensorList moments, at::TensorList variances,
                 const at::Tensor& gradient_scale, const at::Tensor& count, const AdamStep& step);

/// As adamw_step_, for LAMB; the gradients' storage holds the directions afterwards. A tensor whose own norm or whose
/// direction's norm is 0 takes the plain step (ratio 1), and so do all tensors when the decay is 0.
void lamb_step_(at::TensorList parameters, at::TensorList gradients, at::TensorList moments, at::TensorList variances,
                const at::Tensor& gradient_scale, const at::Tensor& count, const AdamStep& step);

}  // namespace tempo::layers
