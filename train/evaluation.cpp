#include "train/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

namespace tempo::train {

bool EvaluationPlan::is_due(std::int64_t step) const { return every > 0 && (step % every == 0 || step == last_step); }

EvaluationPlan evaluations_of(const RunConfig& config) { return {config.train.evaluate_every, config.train.steps}; }

std::int64_t EvaluationPlan::count() const { return every > 0 ? (last_step + every - 1) / every : 0; }

std::int64_t EvaluationPlan::count_until(std::int64_t step) const {
  if (every == 0) return 0;
  return step >= last_step ? count() : step / every;
}

std::optional<ValidationRecord> evaluate(const model::Model& model, data::Dataset& dataset, std::int64_t micro_batch,
                                         const std::function<bool(std::int64_t)>& on_batch) {
  const auto start = std::chrono::steady_clock::now();
  const at::NoGradGuard no_grad;
  const c10::Device device = model.parameters().all().front().value.device();
  const at::TensorOptions wide = at::TensorOptions().dtype(at::kDouble).device(device);
  at::Tensor token = at::zeros({}, wide);
  at::Tensor sentence = at::zeros({}, wide);
  at::Tensor num_correct = at::zeros({}, wide.dtype(at::kLong));
  const data::GlobalBatch all{0, 0, dataset.num_examples()};
  for (std::int64_t offset = 0; offset < all.count; offset += micro_batch) {
    const data::Batch batch = dataset.read(all, offset, std::min(micro_batch, all.count - offset)).to(device);
    // Seed and step key dropout, of which there is none here.
    const model::LossSums sums = model.forward(batch, model::make_context(batch, false, 0, 0));
    token.add_(sums.token.to(at::kDouble));
    if (sums.sentence.defined()) sentence.add_(sums.sentence.to(at::kDouble));
    num_correct.add_(sums.num_correct);
    if (on_batch && !on_batch(offset + batch.num_sequences)) return std::nullopt;
  }
  // A set without labels has a token loss of 0, not 0 / 0.
  const auto num_labels = static_cast<double>(std::max<std::int64_t>(dataset.count_labels(all), 1));
  ValidationRecord record;
  record.token_loss = token.item<double>() / num_labels;
  record.sentence_loss = sentence.item<double>() / static_cast<double>(all.count);
  record.loss = record.token_loss + record.sentence_loss;
  record.token_accuracy = static_cast<double>(num_correct.item<std::int64_t>()) / num_labels;
  record.sequences = all.count;
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

}  // namespace tempo::train
