#include "train/optimizer.h"

#include <ATen/ATen.h>

namespace tempo::train {

Optimizer::Optimizer(const OptimizerConfig& config, const model::Parameters& parameters) : config_(config) {
  groups_[0].weight_decay = config.weight_decay;
  num_updates_ = at::zeros({}, parameters.all().front().value.options().dtype(at::kLong).requires_grad(false));
  for (const model::Parameter& parameter : parameters.all()) {
    Group& group = groups_[parameter.value.dim() >= 2 ? 0 : 1];
    group.names.push_back(parameter.name);
    group.parameters.push_back(parameter.value);
    group.moments.push_back(at::zeros_like(parameter.value));
    group.variances.push_back(at::zeros_like(parameter.value));
    // Rows that only pad the vocabulary are not part of the model.
    group.num_elements += parameter.value.numel() / parameter.value.size(0) * parameter.num_real_rows;
  }
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const Group& group : groups_) {
    for (std::size_t index = 0; index < group.names.size(); ++index) {
      tensors.emplace_back("moment." + group.names[index], group.moments[index]);
      tensors.emplace_back("variance." + group.names[index], group.variances[index]);
    }
  }
  return tensors;
}

std::int64_t Optimizer::num_updates() const { return num_updates_.item<std::int64_t>(); }

void Optimizer::set_num_updates(std::int64_t count) { num_updates_.fill_(count); }

void Optimizer::step(double lr, const at::Tensor& gradient_scale, const at::Tensor& is_finite) {
  const at::NoGradGuard no_grad;
  const at::Tensor is_counted = is_finite.to(at::kLong);
  num_updates_.add_(is_counted);
  const at::Tensor number = at::mul(num_updates_, is_counted);  // 0: skipped
  const auto update = config_.name == "lamb" ? &layers::lamb_step_ : &layers::adamw_step_;
  for (Group& group : groups_) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : group.parameters) gradients.push_back(parameter.grad());
    update(group.parameters, gradients, group.moments, group.variances, gradient_scale, number,
           {lr, config_.beta1, config_.beta2, config_.eps, group.weight_decay, config_.bias_correction});
  }
}

}  // namespace tempo::train
