#include "model/transformer_block.h"

namespace tempo::model {

at::Tensor TransformerBlock::forward(const at::Tensor& z_TH, const layers::StepContext& context) const {
  at::Tensor y_TH = norm1.forward(z_TH);
  if (drops_input) y_TH = layers::dropout(y_TH, context.sequences, context.site(hidden_dropout, input_site));
  const at::Tensor attended_TH = projection.forward(attention.forward(y_TH, context));
  const at::Tensor middle_TH =
      layers::dropout_add(attended_TH, y_TH, context.sequences, context.site(hidden_dropout, projection_site));
  const at::Tensor normed_TH = norm2.forward(middle_TH);
  return layers::dropout_add(mlp.forward(normed_TH), normed_TH, context.sequences,
                             context.site(hidden_dropout, mlp_site));
}

}  // namespace tempo::model
