#include <torch/csrc/autograd/graph_task.h>

#include "layers/ops/dispatch.h"
#include "layers/ops/layer_norm.h"
#include "layers/ops/ops.h"

// FC1, GELU and FC2 as one function, alone or behind a LayerNorm. Owning both products, it decides what FC2 keeps: not its input,
// which the backward pass makes again; and behind a LayerNorm FC1 keeps nothing either, as in layer_norm_linear.cpp. All products
// and their order are those of `linear`, so results have the same bits as the operators apart.

namespace tempo::layers {
namespace {

void gelu_backward_in_place_(const at::Tensor& grad, const at::Tensor& x, std::int64_t form) {
  static const auto handle = find_operator<decltype(gelu_backward_in_place_)>("tempo::gelu_backward_in_place_");
  handle.call(grad, x, form);
}

/// The weights of the two products, as autograd keeps them.
struct MlpWeights {
  at::Tensor fc1_weight, fc1_bias, fc2_weight;
};

struct MlpGradients {
  at::Tensor fc1_weight, fc1_bias, fc2_weight, fc2_bias;
  at::Tensor hidden;  ///< of FC1's output
};

/// All gradients but that of y. `x`, FC1's output, is overwritten; undefined: FC1 is done again.
MlpGradients mlp_gradients(const at::Tensor& grad, const at::Tensor& y, const MlpWeights& weights, at::Tensor x,
                           std::int64_t form) {
  MlpGradients result;
  result.hidden = at::mm(grad, weights.fc2_weight);  // of GELU's output, then of its input
  if (!x.defined()) x = at::addmm(weights.fc1_bias, y, weights.fc1_weight.t());
  gelu_backward_in_place_(result.hidden, x, form);  // x becomes GELU's output
  result.fc2_weight = at::mm(grad.t(), x);
  x.reset();
  result.fc2_bias = at::sum(grad, 0);
  result.fc1_weight = at::mm(result.hidden.t(), y);
  result.fc1_bias = at::sum(result.hidden, 0);
  return result;
}

/// FC1's output as it was kept, to be overwritten. It belongs to its node alone and is needed once, unless the graph is kept for
/// another backward pass: then a copy is taken.
at::Tensor own(const at::Tensor& x) {
  return x.defined() && torch::autograd::get_current_graph_task_keep_graph() ? x.clone() : x;
}

struct MlpFunction : Function<MlpFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& fc1_weight,
                            const at::Tensor& fc1_bias, const at::Tensor& fc2_weight, const at::Tensor& fc2_bias,
                            std::int64_t form, bool keep_x) {
    const at::Tensor x = at::addmm(fc1_bias, y, fc1_weight.t());
    context->save_for_backward({y, fc1_weight, fc1_bias, fc2_weight, keep_x ? x : at::Tensor()});
    context->saved_data["form"] = form;
    return at::addmm(fc2_bias, gelu(x, GeluForm{form}), fc2_weight.t());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("mlp");
    variable_list saved = context->get_saved_variables();
    const MlpGradients g = mlp_gradients(grads[0], saved[0], {saved[1], saved[2], saved[3]}, own(saved[4]),
                                         context->saved_data["form"].toInt());
    at::Tensor grad_y;
    if (context->needs_input_grad(0)) grad_y = at::mm(g.hidden, saved[1]);
    return {grad_y, g.fc1_weight, g.fc1_bias, g.fc2_weight, g.fc2_bias, {}, {}};
  }
};

struct LayerNormMlpFunction : Function<LayerNormMlpFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& z, double eps, const at::Tensor& gamma,
                               const at::Tensor& beta, const at::Tensor& fc1_weight, const at::Tensor& fc1_bias,
                               const at::Tensor& fc2_weight, const at::Tensor& fc2_bias, std::int64_t form,
                               bool keep_x) {
    auto [y, mean, rstd] = normed_rows(z, gamma, beta, eps);
    const at::Tensor x = at::addmm(fc1_bias, y, fc1_weight.t());
    context->save_for_backward(
        {z, mean, rstd, gamma, beta, fc1_weight, fc1_bias, fc2_weight, keep_x ? x : at::Tensor()});
    context->saved_data["form"] = form;
    return {y, at::addmm(fc2_bias, gelu(x, GeluForm{form}), fc2_weight.t())};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("layer_norm_mlp");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& z = saved[0];
    at::Tensor y = normed_again(z, saved[1], saved[2], saved[3], saved[4]);
    MlpGradients g =
        mlp_gradients(grads[1], y, {saved[5], saved[6], saved[7]}, own(saved[8]), context->saved_data["form"].toInt());
    y.reset();
    at::Tensor grad_y = at::mm(g.hidden, saved[5]);
    g.hidden.reset();
    grad_y.add_(grads[0]);  // what y's other reader sent
    auto [grad_z, grad_gamma, grad_beta] = norm_gradients(grad_y, z, saved[1], saved[2], saved[3]);
    return {grad_z, {}, grad_gamma, grad_beta, g.fc1_weight, g.fc1_bias, g.fc2_weight, g.fc2_bias, {}, {}};
  }
};

}  // namespace

at::Tensor mlp(const at::Tensor& y, const at::Tensor& fc1_weight, const at::Tensor& fc1_bias,
               const at::Tensor& fc2_weight, const at::Tensor& fc2_bias, GeluForm form, MlpKeep keep) {
  return MlpFunction::apply(y, fc1_weight, fc1_bias, fc2_weight, fc2_bias, static_cast<std::int64_t>(form),
                            keep == MlpKeep::kGeluInput);
}

std::tuple<at::Tensor, at::Tensor> layer_norm_mlp(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta,
                                                  double eps, const at::Tensor& fc1_weight, const at::Tensor& fc1_bias,
                                                  const at::Tensor& fc2_weight, const at::Tensor& fc2_bias,
                                                  GeluForm form, MlpKeep keep) {
  const variable_list results =
      LayerNormMlpFunction::apply(z, eps, gamma, beta, fc1_weight, fc1_bias, fc2_weight, fc2_bias,
                                  static_cast<std::int64_t>(form), keep == MlpKeep::kGeluInput);
  return {results[0], results[1]};
}

}  // namespace tempo::layers
