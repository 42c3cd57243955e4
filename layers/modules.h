// The layers a model is made of: parameters together with the operators that use them.
//
// A layer's forward takes what it needs of the step from StepContext.
// Shapes: T token slots, H hidden, I intermediate, A heads (suffixes name them: y_TH).
// Not for: where parameters come from (model/parameters.h). Thread rule: as the tensors they hold.
#pragma once

#include <cstdint>

#include "layers/ops/ops.h"

namespace tempo::layers {

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

  at::Tensor forward(const at::Tensor& z_TH) const { return layer_norm(z_TH, weight, bias, eps); }
};

/// Self-attention between its input and its output projection.
struct AttentionCore {
  QkvParameters qkv;
  std::int64_t num_heads = 1;
  double drop_probability = 0;
  std::int64_t site = 0;

  at::Tensor forward(const at::Tensor& y_TH, const StepContext& context) const;
};

/// The feed-forward half of a block: FC2(GELU(FC1(y))).
struct Mlp {
  Linear fc1, fc2;  // [I, H], [H, I]
  GeluForm gelu_form = GeluForm::kExact;

  at::Tensor forward(const at::Tensor& y_TH) const;
};

}  // namespace tempo::layers
