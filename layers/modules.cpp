#include "layers/modules.h"

#include <ATen/core/grad_mode.h>

namespace tempo::layers {
namespace {

/// Whether the norm may keep its output. A tensor without values is planned with, as if it could.
bool can_keep_output(const LayerNorm& norm) {
  if (!at::GradMode::is_enabled()) return false;  // nothing is kept
  return norm.weight.is_meta() || is_norm_invertible(norm.weight, norm.bias).item<bool>();
}

}  // namespace

MaskKeep LayerOptions::dropout_mask() const {
  if (dropout == DropoutOption::kRegenerate) return MaskKeep::kNothing;
  return dropout == DropoutOption::kTempo ? masks : MaskKeep::kBytes;
}

at::Tensor LayerNorm::forward(const at::Tensor& z_TH, NormOption option) const {
  const bool keeps_output = option == NormOption::kTempo && can_keep_output(*this);
  return layer_norm(z_TH, weight, bias, eps, keeps_output ? NormKeep::kOutput : NormKeep::kInput);
}

at::Tensor AttentionCore::forward(const at::Tensor& q_TH, const at::Tensor& k_TH, const at::Tensor& v_TH,
                                  const LayerOptions& options, const StepContext& context) const {
  AttentionOptions kept{num_heads, /*is_causal=*/false, AttentionKeep::kDropped, MaskKeep::kBytes};
  if (options.attention == AttentionOption::kTempo) {
    kept.keep = AttentionKeep::kProbabilities;
    kept.mask = options.dropout_mask();
  } else if (options.attention == AttentionOption::kFlash) {
    kept.keep = AttentionKeep::kLogSumExp;
    kept.mask = MaskKeep::kNothing;
  }
  return attention(q_TH, k_TH, v_TH, kept, context.sequences, context.site(drop_probability, site));
}

std::tuple<at::Tensor, at::Tensor> Mlp::forward(const at::Tensor& z_TH, const LayerNorm& norm,
                                                const LayerOptions& options) const {
  const bool recomputes_norm = options.layer_norm == NormOption::kRecompute;
  if (recomputes_norm && options.fuses_mlp()) {
    return layer_norm_mlp(z_TH, norm.weight, norm.bias, norm.eps, fc1.weight, fc1.bias, fc2.weight, fc2.bias, gelu_form,
                          options.mlp_keep());
  }
  if (recomputes_norm) {
    const auto [y_TH, x_TI] = layer_norm_linear(z_TH, norm.weight, norm.bias, norm.eps, fc1.weight, fc1.bias);
    return {y_TH, fc2.forward(gelu(x_TI, gelu_form, options.gelu_keep(), options.masks))};
  }
  const at::Tensor y_TH = norm.forward(z_TH, options.layer_norm);
  if (options.fuses_mlp()) {
    return {y_TH, mlp(y_TH, fc1.weight, fc1.bias, fc2.weight, fc2.bias, gelu_form, options.mlp_keep())};
  }
  return {y_TH, fc2.forward(gelu(fc1.forward(y_TH), gelu_form, options.gelu_keep(), options.masks))};
}

}  // namespace tempo::layers
