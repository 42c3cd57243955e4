#include "model/model.h"

#include "model/bert.h"

namespace tempo::model {

LossSums Model::forward(const data::Batch& batch, const layers::StepContext& context) const {
  const Logits logits = heads(encode(batch, context), batch);
  const layers::CrossEntropy token =
      layers::cross_entropy(logits.token_MV, batch.labels, config_.vocab_size, data::kIgnoreLabel);
  LossSums sums{token.loss_sum, {}, token.num_correct};
  if (logits.sentence_B2.defined()) {
    sums.sentence = layers::cross_entropy(logits.sentence_B2, batch.next_sentence, 2, data::kIgnoreLabel).loss_sum;
  }
  return sums;
}

layers::StepContext make_context(const data::Batch& batch, bool training, std::uint64_t seed, std::int64_t step) {
  return {{batch.sequence_starts, batch.sequence_lengths, batch.sequence_ids, batch.host_starts}, training, seed, step};
}

std::unique_ptr<Model> make_model(const ModelConfig& config, c10::Device device, const layers::LayerOptions& options) {
  validate(config);
  return make_bert(config, device, options);
}

}  // namespace tempo::model
