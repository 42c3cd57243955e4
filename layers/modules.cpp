#include "layers/modules.h"

namespace tempo::layers {

at::Tensor AttentionCore::forward(const at::Tensor& y_TH, const StepContext& context) const {
  const auto [q_TH, k_TH, v_TH] = qkv_linear(y_TH, qkv);
  return attention(q_TH, k_TH, v_TH, num_heads, context.sequences, context.site(drop_probability, site));
}

at::Tensor Mlp::forward(const at::Tensor& y_TH) const { return fc2.forward(gelu(fc1.forward(y_TH), gelu_form)); }

}  // namespace tempo::layers
