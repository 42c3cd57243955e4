#include "layers/ops/dispatch.h"
#include "layers/ops/ops.h"

// Matrix products are ATen's; these functions decide what is kept and where gradients are added up.

namespace tempo::layers {
namespace {

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    return at::addmm(bias, x, weight.t());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("linear");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& grad = grads[0];
    at::Tensor grad_x;
    if (context->needs_input_grad(0)) grad_x = at::mm(grad, saved[1]);
    return {grad_x, at::mm(grad.t(), saved[0]), at::sum(grad, 0)};
  }
};

struct QkvLinearFunction : Function<QkvLinearFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& query_weight,
                               const at::Tensor& query_bias, const at::Tensor& key_weight, const at::Tensor& key_bias,
                               const at::Tensor& value_weight, const at::Tensor& value_bias) {
    context->save_for_backward({x, query_weight, key_weight, value_weight});
    return {at::addmm(query_bias, x, query_weight.t()), at::addmm(key_bias, x, key_weight.t()),
            at::addmm(value_bias, x, value_weight.t())};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("qkv_linear");
    const variable_list saved = context->get_saved_variables();
    at::Tensor grad_x = at::mm(grads[0], saved[1]);
    grad_x.addmm_(grads[1], saved[2]);
    grad_x.addmm_(grads[2], saved[3]);
    variable_list result{grad_x};
    for (const at::Tensor& grad : grads) {
      result.push_back(at::mm(grad.t(), saved[0]));
      result.push_back(at::sum(grad, 0));
    }
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LinearFunction::apply(x, weight, bias);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> qkv_linear(const at::Tensor& x, const QkvParameters& parameters) {
  const variable_list qkv =
      QkvLinearFunction::apply(x, parameters.query_weight, parameters.query_bias, parameters.key_weight,
                               parameters.key_bias, parameters.value_weight, parameters.value_bias);
  return {qkv[0], qkv[1], qkv[2]};
}

}  // namespace tempo::layers
