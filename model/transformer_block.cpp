#include "model/transformer_block.h"

#include <ATen/core/grad_mode.h>

namespace tempo::model {

using layers::NormOption;

at::Tensor TransformerBlock::forward(const at::Tensor& z_TH, const layers::StepContext& context) const {
  if (options.recompute != layers::RecomputeOption::kBlock || !at::GradMode::is_enabled())
    return compute(z_TH, context);
  const TransformerBlock block = *this;  // tensors are shared; the graph may outlive this object
  return layers::recomputed([block, context](const at::Tensor& z) { return block.compute(z, context); }, z_TH,
                            parameters());
}

at::Tensor TransformerBlock::compute(const at::Tensor& z_TH, const layers::StepContext& context) const {
  const layers::Sequences& sequences = context.sequences;
  const layers::DropoutSite opening = context.site(drops_input ? hidden_dropout : 0.0, input_site);
  layers::NormedQkv normed;
  if (options.layer_norm == NormOption::kRecompute) {
    normed = layers::layer_norm_qkv(z_TH, norm1.weight, norm1.bias, norm1.eps, attention.qkv, sequences, opening);
  } else {
    normed.y = layers::dropout(norm1.forward(z_TH, options.layer_norm), sequences, opening, options.dropout_mask());
    std::tie(normed.q, normed.k, normed.v) = layers::qkv_linear(normed.y, attention.qkv);
  }
  const at::Tensor attended_TH = projection.forward(attention.forward(normed.q, normed.k, normed.v, options, context));
  const at::Tensor middle_TH = layers::dropout_add(
      attended_TH, normed.y, sequences, context.site(hidden_dropout, projection_site), options.dropout_mask());
  const auto [y_TH, fed_TH] = mlp.forward(middle_TH, norm2, options);
  return layers::dropout_add(fed_TH, y_TH, sequences, context.site(hidden_dropout, mlp_site), options.dropout_mask());
}

std::vector<at::Tensor> TransformerBlock::parameters() const {
  const layers::QkvParameters& qkv = attention.qkv;
  return {norm1.weight,     norm1.bias,     qkv.query_weight,  qkv.query_bias,  qkv.key_weight, qkv.key_bias,
          qkv.value_weight, qkv.value_bias, projection.weight, projection.bias, norm2.weight,   norm2.bias,
          mlp.fc1.weight,   mlp.fc1.bias,   mlp.fc2.weight,    mlp.fc2.bias};
}

}  // namespace tempo::model
