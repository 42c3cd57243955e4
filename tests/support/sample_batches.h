// Small batches of random tokens for tests of models and steps.
#pragma once

#include <ATen/ATen.h>

#include "data/batch.h"
#include "model/config.h"

namespace tempo::testing {

inline model::ModelConfig small_bert() {
  model::ModelConfig config;
  config.hidden_size = 16;
  config.num_layers = 2;
  config.num_heads = 2;
  config.intermediate_size = 32;
  config.vocab_size = 50;
  config.max_positions = 12;
  config.hidden_dropout = 0.2;
  config.attention_dropout = 0.2;
  return config;
}

/// Sequences of `lengths` real tokens in `slots` slots each, or, with slots 0, in as many as they have tokens. Token ids depend on
/// (sequence, position) only, so that both layouts hold the same examples; two labels a sequence, sequence 1 has one.
inline data::Batch sample_batch(const std::vector<std::int64_t>& lengths, std::int64_t slots,
                                c10::Device device = c10::kCPU) {
  std::vector<std::int64_t> tokens, positions, types, starts, ids, label_positions, labels, next;
  data::Batch batch;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const std::int64_t start = static_cast<std::int64_t>(tokens.size());
    starts.push_back(start);
    ids.push_back(static_cast<std::int64_t>(b) + 100);
    next.push_back(static_cast<std::int64_t>(b) % 2);
    for (std::int64_t i = 0; i < (slots > 0 ? slots : lengths[b]); ++i) {
      const bool real = i < lengths[b];
      tokens.push_back(real ? (static_cast<std::int64_t>(b) * 7 + i * 3) % 50 : 0);
      positions.push_back(i);
      types.push_back(real && i >= lengths[b] / 2);
    }
    for (std::int64_t l = 0; l < 2; ++l) {
      const bool used = l == 0 || b != 1;
      label_positions.push_back(used ? start + 1 + l : start);
      labels.push_back(used ? 10 + static_cast<std::int64_t>(b) + l : data::kIgnoreLabel);
      batch.num_labels += used;
    }
    batch.num_real_tokens += lengths[b];
  }
  starts.push_back(static_cast<std::int64_t>(tokens.size()));
  const auto tensor = [&](const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong).to(device); };
  batch.token_ids = tensor(tokens);
  batch.position_ids = tensor(positions);
  batch.token_types = tensor(types);
  batch.sequence_starts = tensor(starts);
  batch.sequence_lengths = tensor(lengths);
  batch.sequence_ids = tensor(ids);
  batch.label_positions = tensor(label_positions);
  batch.labels = tensor(labels);
  batch.next_sentence = tensor(next);
  batch.num_tokens = static_cast<std::int64_t>(tokens.size());
  batch.num_sequences = static_cast<std::int64_t>(lengths.size());
  batch.host_starts = starts;
  return batch;
}

}  // namespace tempo::testing
