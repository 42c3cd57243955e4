// The layers a model is made of: parameters together with the operators that use them, and how they keep less than PyTorch does.
//
// A layer's forward takes what it needs of the step from StepContext.
// Shapes: T token slots, H hidden, I intermediate, A heads (suffixes name them: y_TH).
// Not for: where parameters come from (model/parameters.h). Thread rule: as the tensors they hold.
#pragma once

#include <cstdint>
#include <tuple>

#include "layers/ops/ops.h"

namespace tempo::layers {

// The values of the keys `layers.*`. What each keeps stands in docs/operators.md; `baseline` is what eager PyTorch keeps, `tempo`
// what the paper keeps, the last of each is the least that gives the same gradients to rounding.
enum class GeluOption { kBaseline, kTempo, kRecompute };
enum class NormOption { kBaseline, kTempo, kRecompute };
enum class DropoutOption { kBaseline, kTempo, kRegenerate };
enum class AttentionOption { kBaseline, kTempo, kFlash };
enum class RecomputeOption { kNone, kFfn, kBlock };

struct LayerOptions {
  GeluOption gelu = GeluOption::kBaseline;
  NormOption layer_norm = NormOption::kBaseline;
  DropoutOption dropout = DropoutOption::kBaseline;
  AttentionOption attention = AttentionOption::kBaseline;
  RecomputeOption recompute = RecomputeOption::kNone;
  MaskKeep masks = MaskKeep::kBits;  ///< of what is `tempo`: bytes or bits

  MaskKeep dropout_mask() const;
  GeluKeep gelu_keep() const { return gelu == GeluOption::kTempo ? GeluKeep::kOutput : GeluKeep::kInput; }
  /// FC1, GELU and FC2 are one operator.
  bool fuses_mlp() const { return gelu == GeluOption::kRecompute || recompute == RecomputeOption::kFfn; }
  MlpKeep mlp_keep() const { return recompute == RecomputeOption::kFfn ? MlpKeep::kMlpInput : MlpKeep::kGeluInput; }
};

/// What one forward pass shares: the layout of its batch, whether it trains, and what keys its dropout.
struct StepContext {
  Sequences sequences;
  bool training = true;
  std::uint64_t seed = 0;
  std::int64_t step = 0;

  /// The dropout of one site; nothing is dropped outside training.
  DropoutSite site(double drop_probability, std::int64_t number) const {
    return {training ? drop_probability : 0.0, seed, step, number};
  }
};

/// y = x W^T + b.
struct Linear {
  at::Tensor weight, bias;  // [out, in], [out]

  at::Tensor forward(const at::Tensor& x) const { return linear(x, weight, bias); }
};

struct LayerNorm {
  at::Tensor weight, bias;  // [H]
  double eps = 1e-12;

  /// With `tempo` the output is kept where it can be inverted, otherwise the input.
  at::Tensor forward(const at::Tensor& z_TH, NormOption option = NormOption::kBaseline) const;
};

/// Self-attention between its input and its output projection.
struct AttentionCore {
  QkvParameters qkv;
  std::int64_t num_heads = 1;
  double drop_probability = 0;
  std::int64_t site = 0;

  at::Tensor forward(const at::Tensor& q_TH, const at::Tensor& k_TH, const at::Tensor& v_TH,
                     const LayerOptions& options, const StepContext& context) const;
};

/// The feed-forward half of a block behind its norm: y = norm(z), FC2(GELU(FC1(y))).
struct Mlp {
  Linear fc1, fc2;  // [I, H], [H, I]
  GeluForm gelu_form = GeluForm::kExact;

  /// -> (y, FC2(..)): the residual needs y.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& z_TH, const LayerNorm& norm,
                                             const LayerOptions& options) const;
};

}  // namespace tempo::layers
