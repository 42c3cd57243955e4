// One transformer block, shared by all families.
//
// Blocks hand over the residual before it is normalised: z -> norm -> attention -> z' -> norm -> feed-forward -> z''. The norm
// that opens BERT's block 0 is that of the embeddings, and the last block's own norm stands before the heads; so post-norm and
// pre-norm blocks have one shape, and a LayerNorm always stands before the products that read it.
//
//   post-norm (BERT)   y = norm1(z), z' = y + drop(proj(attention(y))), y' = norm2(z'), z'' = y' + drop(mlp(y'))
// Not for: which parameters (the family's file). Thread rule: as the tensors it holds.
#pragma once

#include <vector>

#include "layers/modules.h"

namespace tempo::model {

struct TransformerBlock {
  layers::LayerNorm norm1;
  layers::AttentionCore attention;
  layers::Linear projection;
  layers::LayerNorm norm2;
  layers::Mlp mlp;
  double hidden_dropout = 0;
  bool drops_input = false;     ///< BERT's block 0: the embeddings are dropped after their norm
  std::int64_t input_site = 0;  ///< dropout sites (docs/operators.md)
  std::int64_t projection_site = 0;
  std::int64_t mlp_site = 0;
  layers::LayerOptions options;

  /// z [T, H] -> z'' [T, H].
  at::Tensor forward(const at::Tensor& z_TH, const layers::StepContext& context) const;

 private:
  at::Tensor compute(const at::Tensor& z_TH, const layers::StepContext& context) const;
  std::vector<at::Tensor> parameters() const;
};

}  // namespace tempo::model
