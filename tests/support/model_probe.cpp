// Runs a model folder on one batch and writes what the pytest oracles compare: hidden states, logits, losses, gradients.
//
// usage: model_probe MODEL_FOLDER BATCH.safetensors OUT.safetensors
// BATCH holds int64 tensors: token_ids, token_types [B, S]; lengths [B]; labels [B, S] with -100 where there is none;
// next_sentence [B]. Dropout is off. OUT holds hidden [B, S, H], token_logits [labels, V], sentence_logits [B, 2], loss (the sum
// of the two means) and grad.NAME for every parameter.
#include <ATen/ATen.h>

#include <iostream>

#include "model/hf_weights.h"

namespace {

using tempo::data::Batch;

Batch read_batch(const tempo::model::SafetensorsReader& file) {
  const at::Tensor tokens = file.read("token_ids");
  const std::int64_t num_sequences = tokens.size(0);
  const std::int64_t slots = tokens.size(1);
  const at::Tensor labels = file.read("labels").flatten();
  Batch batch;
  batch.token_ids = tokens.flatten();
  batch.token_types = file.read("token_types").flatten();
  batch.position_ids = at::arange(slots, at::kLong).repeat({num_sequences});
  batch.sequence_starts = at::arange(num_sequences + 1, at::kLong) * slots;
  batch.sequence_lengths = file.read("lengths");
  batch.sequence_ids = at::arange(num_sequences, at::kLong);
  batch.label_positions = at::nonzero(labels.ne(tempo::data::kIgnoreLabel)).flatten();
  batch.labels = labels.index({batch.label_positions});
  batch.next_sentence = file.read("next_sentence");
  batch.num_tokens = num_sequences * slots;
  batch.num_sequences = num_sequences;
  batch.num_labels = batch.labels.numel();
  for (std::int64_t b = 0; b <= num_sequences; ++b) batch.host_starts.push_back(b * slots);
  return batch;
}

void probe(const std::string& folder, const std::string& input, const std::string& output) {
  tempo::model::ModelConfig config = tempo::model::read_hugging_face_config(folder);
  const std::unique_ptr<tempo::model::Model> model = tempo::model::make_model(config, c10::DeviceType::CPU);
  tempo::model::load_weights(*model, folder, 0);
  const Batch batch = read_batch(tempo::model::SafetensorsReader(input));
  const tempo::layers::StepContext context = tempo::model::make_context(batch, false, 0, 1);
  const at::Tensor hidden = model->encode(batch, context);
  const tempo::model::Logits logits = model->heads(hidden, batch);
  const tempo::model::LossSums sums = model->forward(batch, context);
  const at::Tensor loss = sums.token / batch.num_labels + sums.sentence / batch.num_sequences;
  loss.backward();
  std::vector<std::pair<std::string, at::Tensor>> results = {
      {"hidden", hidden.detach().view({batch.num_sequences, -1, config.hidden_size})},
      {"token_logits", logits.token_MV.detach()},
      {"sentence_logits", logits.sentence_B2.detach()},
      {"loss", loss.detach()}};
  for (const tempo::model::Parameter& parameter : model->parameters().all()) {
    results.emplace_back("grad." + parameter.name, parameter.value.grad());
  }
  tempo::model::write_safetensors(output, results);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: model_probe MODEL_FOLDER BATCH.safetensors OUT.safetensors\n";
    return 2;
  }
  probe(argv[1], argv[2], argv[3]);
  return 0;
}
