#include "layers/ops/dispatch.h"
#include "layers/ops/dropout.h"
#include "layers/ops/layer_norm.h"
#include "layers/ops/ops.h"

// LayerNorm with the matrix products that read its output y. Nothing keeps y: the backward pass makes it again from z, mean and
// rstd, which is one pass over memory beside products of O(T H^2). Nothing is inverted, so any gamma will do.

namespace tempo::layers {
namespace {

struct LayerNormProjections : Function<LayerNormProjections> {
  /// `projections`: weight and bias of each. Results: y, then the projections of y.
  static variable_list forward(AutogradContext* context, const at::Tensor& z, const at::Tensor& gamma,
                               const at::Tensor& beta, double eps, const Sequences& sequences, const DropoutSite& site,
                               at::TensorList projections) {
    auto [y, mean, rstd] = normed_rows(z, gamma, beta, eps);
    drop_rows(y, sequences, site);
    variable_list kept{z, mean, rstd, gamma, beta, sequences.starts, sequences.ids};
    variable_list results{y};
    for (std::size_t p = 0; p < projections.size(); p += 2) {
      kept.push_back(projections[p]);
      results.push_back(at::addmm(projections[p + 1], y, projections[p].t()));
    }
    context->save_for_backward(std::move(kept));
    save_site(site, *context);
    context->set_materialize_grads(false);  // a result that nobody reads costs no tensor of zeros
    return results;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_double_backward("layer_norm_linear");
    const variable_list kept = context->get_saved_variables();
    const at::Tensor& z = kept[0];
    const at::Tensor& mean = kept[1];
    const at::Tensor& rstd = kept[2];
    const at::Tensor& gamma = kept[3];
    const at::Tensor* weights = &kept[kNumKeptBeforeWeights];
    Sequences sequences;
    sequences.starts = kept[5];
    sequences.ids = kept[6];
    const DropoutSite site = saved_site(*context);

    variable_list result(6);  // of z, gamma, beta, and of what has no gradient: eps, sequences, site
    at::Tensor y = normed_again(z, mean, rstd, gamma, kept[4]);
    drop_rows(y, sequences, site);
    for (std::size_t p = 1; p < grads.size(); ++p) {
      result.push_back(grads[p].defined() ? at::mm(grads[p].t(), y) : at::Tensor());
      result.push_back(grads[p].defined() ? at::sum(grads[p], 0) : at::Tensor());
    }
    y.reset();  // before the gradient of y is made: one temporary at a time
    at::Tensor grad_y;
    for (std::size_t p = 1; p < grads.size(); ++p) add_product(grads[p], weights[p - 1], grad_y);
    add_gradient(grads[0], grad_y);
    drop_rows(grad_y, sequences, site);
    std::tie(result[0], result[1], result[2]) = norm_gradients(grad_y, z, mean, rstd, gamma);
    return result;
  }

 private:
  static constexpr std::size_t kNumKeptBeforeWeights = 7;

  /// sum += grad weight, as qkv_linear adds: the first product starts the sum.
  static void add_product(const at::Tensor& grad, const at::Tensor& weight, at::Tensor& sum) {
    if (!grad.defined()) return;
    if (sum.defined()) {
      sum.addmm_(grad, weight);
    } else {
      sum = at::mm(grad, weight);
    }
  }

  /// The gradient that y's other reader sent. It is autograd's to share: what we change must be our own.
  static void add_gradient(const at::Tensor& grad, at::Tensor& sum) {
    if (!grad.defined()) return;
    if (sum.defined()) {
      sum.add_(grad);
    } else {
      sum = grad.clone(at::MemoryFormat::Contiguous);
    }
  }
};

}  // namespace

NormedQkv layer_norm_qkv(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps,
                         const QkvParameters& parameters, const Sequences& sequences, const DropoutSite& input_site) {
  const auto& [query_weight, query_bias, key_weight, key_bias, value_weight, value_bias] = parameters;
  const variable_list results = LayerNormProjections::apply(
      z, gamma, beta, eps, sequences, input_site,
      at::TensorList{query_weight, query_bias, key_weight, key_bias, value_weight, value_bias});
  return {results[0], results[1], results[2], results[3]};
}

std::tuple<at::Tensor, at::Tensor> layer_norm_linear(const at::Tensor& z, const at::Tensor& gamma,
                                                     const at::Tensor& beta, double eps, const at::Tensor& weight,
                                                     const at::Tensor& bias) {
  const variable_list results =
      LayerNormProjections::apply(z, gamma, beta, eps, Sequences(), DropoutSite(), at::TensorList{weight, bias});
  return {results[0], results[1]};
}

}  // namespace tempo::layers
