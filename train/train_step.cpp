#include "train/train_step.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tempo::train {

TrainStep::TrainStep(model::Model& model, Optimizer& optimizer, const TrainStepOptions& options)
    : model_(model), optimizer_(optimizer), options_(options) {}

void TrainStep::clear_gradients() {
  for (const model::Parameter& parameter : model_.parameters().all()) {
    at::Tensor value = parameter.value;
    value.mutable_grad().reset();
  }
}

at::Tensor TrainStep::gradient_squares() const {
  std::vector<at::Tensor> gradients;
  for (const model::Parameter& parameter : model_.parameters().all()) gradients.push_back(parameter.value.grad());
  return layers::sums_of_squares(gradients);
}

StepResult TrainStep::run(const StepPlan& plan, const std::function<std::optional<data::Batch>()>& next) {
  // A batch without labels has a token loss of 0, not 0 / 0.
  const double token_weight = 1.0 / static_cast<double>(std::max<std::int64_t>(plan.num_labels, 1));
  const double sentence_weight = 1.0 / static_cast<double>(std::max<std::int64_t>(plan.num_sequences, 1));
  clear_gradients();
  const at::TensorOptions wide =
      at::TensorOptions().dtype(at::kDouble).device(model_.parameters().all().front().value.device());
  StepResult result{{}, at::zeros({}, wide), at::zeros({}, wide), at::zeros({}, wide.dtype(at::kLong)), {}, {}, {}};
  while (const std::optional<data::Batch> batch = next()) {
    const layers::StepContext context = model::make_context(*batch, true, options_.seed, plan.step);
    const model::LossSums sums = model_.forward(*batch, context);
    at::Tensor loss = at::mul(sums.token, token_weight);
    if (sums.sentence.defined()) loss = at::add(loss, at::mul(sums.sentence, sentence_weight));
    loss.backward();
    const at::NoGradGuard no_grad;
    result.token_loss.add_(sums.token.detach().to(at::kDouble), token_weight);
    if (sums.sentence.defined()) result.sentence_loss.add_(sums.sentence.detach().to(at::kDouble), sentence_weight);
    result.num_correct.add_(sums.num_correct);
  }
  const at::NoGradGuard no_grad;
  result.loss = at::add(result.token_loss, result.sentence_loss);
  result.grad_squares = gradient_squares();
  result.grad_norm = at::sqrt(at::sum(result.grad_squares));
  const at::Tensor both = at::add(result.loss, result.grad_norm);
  result.is_finite = at::eq(at::sub(both, both), 0);  // infinity minus itself is NaN
  // clip / norm, at most 1; a norm of 0 gives infinity, and so 1.
  const at::Tensor scale =
      options_.grad_clip > 0
          ? at::clamp_max(at::mul(at::reciprocal(result.grad_norm), options_.grad_clip), 1).to(at::kFloat)
          : at::ones({}, wide.dtype(at::kFloat));
  optimizer_.step(plan.lr, scale, result.is_finite);
  clear_gradients();
  return result;
}

}  // namespace tempo::train
