// The public contract of every operator: differentiable functions on tensors.
//
// Shapes: T token slots, B sequences, H hidden size, A heads, M gathered rows, V classes. Tensors are contiguous, of one
// type (fp32, bf16, fp16 or, for gradient checks, fp64) and on one device unless said otherwise; whatever breaks that is a caller's
// fault (TORCH_CHECK). What a function computes from 16-bit tensors it rounds once; sums and statistics stay in fp32.
// Under each function stands what it keeps for the backward pass. Backward twice with retain_graph gives equal gradients;
// second derivatives are refused. On every device an operator allocates the same tensors, temporaries included, so that a
// step on the meta device has the memory of a real one.
//
// Not for: parameters or their names (modules.h). Thread rule: as ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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

/// What is kept of a mask for the backward pass: a byte per element, as Tempo's paper has it, a bit, or nothing: then it is drawn again
/// from its key (dropout only).
enum class MaskKeep : std::int64_t { kBytes = 0, kBits = 1, kNothing = 2 };

/// What gelu keeps. kInput: x. kOutput: y, the very tensor it returns, and a mask that says on which side of GELU's minimum x was;
/// the slope comes from these (math/gelu_inverse.h), so x may go. (In-place GELU, Andoorveedu et al. 2022)
enum class GeluKeep : std::int64_t { kInput = 0, kOutput = 1 };

/// GELU of `x`, any shape. (Hendrycks & Gimpel 2016) `masks` is for kOutput. Near the minimum the two keeps round y differently.
at::Tensor gelu(const at::Tensor& x, GeluForm form, GeluKeep keep = GeluKeep::kInput, MaskKeep masks = MaskKeep::kBits);

/// What mlp keeps. kGeluInput: y and FC1's output; GELU's output is made again in place, or in a copy where the graph is retained.
/// kMlpInput: y alone; FC1's output is made again, too.
enum class MlpKeep : std::int64_t { kGeluInput = 0, kMlpInput = 1 };

/// FC2(GELU(FC1(y))): y [T, H], fc1_weight [I, H], fc2_weight [H, I]. Values and gradients have the bits of linear, gelu with
/// kInput, linear.
at::Tensor mlp(const at::Tensor& y, const at::Tensor& fc1_weight, const at::Tensor& fc1_bias,
               const at::Tensor& fc2_weight, const at::Tensor& fc2_bias, GeluForm form, MlpKeep keep);

/// What LayerNorm keeps: its input z, or its output y, from which the backward pass takes x_hat = (y - beta) / gamma.
enum class NormKeep { kInput, kOutput };

/// LayerNorm over the last dimension of z [T, H]. (Ba et al. 2016) kInput keeps z, and mean and rstd [T]. kOutput keeps y, whose
/// storage a linear after it keeps too, and rstd; it is for parameters that are is_norm_invertible. Elsewhere gradients lose
/// digits in the channels at fault, and gamma's are 0 where gamma is, but none is NaN. y must not be written to.
at::Tensor layer_norm(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps,
                      NormKeep keep = NormKeep::kInput);

/// Whether kOutput may be used: a bool scalar tensor on the parameters' device, which the caller reads when it suits.
at::Tensor is_norm_invertible(const at::Tensor& gamma, const at::Tensor& beta);

/// Dropout of x [T, H], rows keyed by example and position. Keeps the mask as `keep` says.
at::Tensor dropout(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site, MaskKeep keep);

/// residual + dropout(x), both [T, H], in one pass. Keeps the mask as `keep` says.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const Sequences& sequences,
                       const DropoutSite& site, MaskKeep keep);

/// x W^T + b: x [T, in], weight [out, in], bias [out]. Keeps x.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

struct QkvParameters {
  at::Tensor query_weight, query_bias, key_weight, key_bias, value_weight, value_bias;  // [H, H] and [H]
};

/// The three projections of x [T, H] that open attention, three parameters but one gradient for x. Keeps x once.
std::tuple<at::Tensor, at::Tensor, at::Tensor> qkv_linear(const at::Tensor& x, const QkvParameters& parameters);

struct NormedQkv {
  at::Tensor y, q, k, v;
};

/// y = dropout(layer_norm(z)) and qkv_linear(y) as one operator: the same values and gradients, bit for bit, as long as y has one
/// other reader (with more, sums of its gradients may be added in another order). Keeps z, and mean and rstd [T]; the backward
/// pass makes y again, in one temporary of its size.
NormedQkv layer_norm_qkv(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps,
                         const QkvParameters& parameters, const Sequences& sequences, const DropoutSite& input_site);

/// y = layer_norm(z) and linear(y), likewise -> (y, linear(y)).
std::tuple<at::Tensor, at::Tensor> layer_norm_linear(const at::Tensor& z, const at::Tensor& gamma,
                                                     const at::Tensor& beta, double eps, const at::Tensor& weight,
                                                     const at::Tensor& bias);

/// y = layer_norm(z) and mlp(y), likewise -> (y, mlp(y)). Keeps z, mean, rstd and, with kGeluInput, FC1's output.
std::tuple<at::Tensor, at::Tensor> layer_norm_mlp(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta,
                                                  double eps, const at::Tensor& fc1_weight, const at::Tensor& fc1_bias,
                                                  const at::Tensor& fc2_weight, const at::Tensor& fc2_bias,
                                                  GeluForm form, MlpKeep keep);

/// function(z), which must be a function of z, `parameters` and constants alone: no randomness with a state. Keeps z; the backward
/// pass calls it again and differentiates that. (Chen et al. 2016)
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& z,
                      at::TensorList parameters);

/// What attention keeps for the backward pass besides q, k and v; for a sequence of n slots
///   kDropped        the probabilities (A n^2 elements), their dropped copy and the mask as bytes: what eager PyTorch keeps
///   kProbabilities  the probabilities, and the mask as AttentionOptions::mask says; the dropped copy is made again
///   kLogSumExp      a log-sum-exp per query (A n elements); everything else is computed again, in chunks of queries
/// Without dropout there is neither mask nor copy.
enum class AttentionKeep : std::int64_t { kDropped = 0, kProbabilities = 1, kLogSumExp = 2 };

struct AttentionOptions {
  std::int64_t num_heads = 1;
  bool is_causal = false;  ///< query r attends to keys up to r
  AttentionKeep keep = AttentionKeep::kDropped;
  MaskKeep mask = MaskKeep::kBytes;  ///< kDropped: bytes; kLogSumExp: nothing
};

/// Scaled dot-product attention (Vaswani et al. 2017, eq. 1) within each sequence; q, k, v [T, H], head a in columns
/// [a H/A, (a+1) H/A). Keys at or beyond a sequence's length get no weight; queries there give zeros.
/// Keeps q, k, v and what `options` say.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionOptions& options,
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
  at::Tensor loss_sum;     ///< scalar, fp32 for 16-bit logits: sum over labelled rows of -log softmax(logits)[label]
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
