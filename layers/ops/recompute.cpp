#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "layers/ops/dispatch.h"
#include "layers/ops/ops.h"

namespace tempo::layers {
namespace {

using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

/// Holds the function in a node of the graph.
struct FunctionHolder : torch::CustomClassHolder {
  explicit FunctionHolder(TensorFunction given) : function(std::move(given)) {}
  TensorFunction function;
};

/// The parameters are arguments only so that their gradients leave through this node: each is then complete when it arrives, as
/// reducers of gradients need it.
struct RecomputedFunction : Function<RecomputedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& z, const TensorFunction& function,
                            at::TensorList parameters) {
    variable_list saved{z};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["function"] = c10::IValue::make_capsule(c10::make_intrusive<FunctionHolder>(function));
    return function(z);  // gradients are off in here: nothing inside is kept
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("recomputed");
    variable_list inputs = context->get_saved_variables();
    inputs[0] = inputs[0].detach().set_requires_grad(true);
    const auto holder = c10::static_intrusive_pointer_cast<FunctionHolder>(context->saved_data["function"].toCapsule());
    at::Tensor result;
    {
      const at::AutoGradMode enabled(true);
      result = holder->function(inputs[0]);
    }
    variable_list found = torch::autograd::grad({result}, inputs, {grads[0]});
    found.insert(found.begin() + 1, at::Tensor());  // of the function
    return found;
  }
};

}  // namespace

at::Tensor recomputed(const TensorFunction& function, const at::Tensor& z, at::TensorList parameters) {
  return RecomputedFunction::apply(z, function, parameters);
}

}  // namespace tempo::layers
