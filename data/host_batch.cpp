#include "data/host_batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <numeric>
#include <utility>

namespace tempo::data {
namespace {

at::Tensor to_tensor(std::vector<std::int64_t>& values, c10::Device device) {
  const auto size = static_cast<std::int64_t>(values.size());
  at::Tensor tensor = at::empty({size}, at::TensorOptions(device).dtype(at::kLong));
  if (size != 0 && !device.is_meta()) tensor.copy_(at::from_blob(values.data(), {size}, at::kLong));
  return tensor;
}

}  // namespace

HostBatch::HostBatch(std::int64_t num_sequences, std::int64_t sequence_length, std::int64_t max_predictions) {
  for (auto* values : {&token_ids, &position_ids, &token_types}) values->reserve(num_sequences * sequence_length);
  for (auto* values : {&sequence_starts, &sequence_lengths, &sequence_ids, &next_sentence})
    values->reserve(num_sequences + 1);
  for (auto* values : {&label_positions, &labels}) values->reserve(num_sequences * max_predictions);
  sequence_starts.push_back(0);
}

void HostBatch::add(const Shard& shard, std::int64_t row, std::int64_t example, std::int64_t max_predictions) {
  const std::int64_t length = shard.shape.sequence_length;
  const std::int64_t start = sequence_starts.back();
  const auto tokens = shard.input_ids.begin() + row * length;
  token_ids.insert(token_ids.end(), tokens, tokens + length);
  const auto segments = shard.segment_ids.begin() + row * length;
  token_types.insert(token_types.end(), segments, segments + length);
  for (std::int64_t position = 0; position < length; ++position) position_ids.push_back(position);

  sequence_starts.push_back(start + length);
  sequence_lengths.push_back(shard.lengths[row]);
  sequence_ids.push_back(example);
  next_sentence.push_back(shard.next_sentence_labels[row]);
  const std::int64_t first_label = row * shard.shape.max_predictions;
  for (std::int64_t slot = 0; slot < max_predictions; ++slot) {
    const bool used = slot < shard.num_labels[row];
    label_positions.push_back(used ? start + shard.masked_lm_positions[first_label + slot] : start);
    labels.push_back(used ? shard.masked_lm_ids[first_label + slot] : kIgnoreLabel);
  }
  num_labels += shard.num_labels[row];
}

std::int64_t HostBatch::num_bytes() const {
  std::size_t elements = 0;
  for (const auto* values : {&token_ids, &position_ids, &token_types, &sequence_starts, &sequence_lengths,
                             &sequence_ids, &label_positions, &labels, &next_sentence}) {
    elements += values->size();
  }
  return static_cast<std::int64_t>(elements * sizeof(std::int64_t));
}

Batch HostBatch::to(c10::Device device) && {
  Batch batch;
  batch.token_ids = to_tensor(token_ids, device);
  batch.position_ids = to_tensor(position_ids, device);
  batch.token_types = to_tensor(token_types, device);
  batch.sequence_starts = to_tensor(sequence_starts, device);
  batch.sequence_lengths = to_tensor(sequence_lengths, device);
  batch.sequence_ids = to_tensor(sequence_ids, device);
  batch.label_positions = to_tensor(label_positions, device);
  batch.labels = to_tensor(labels, device);
  batch.next_sentence = to_tensor(next_sentence, device);
  batch.num_tokens = sequence_starts.back();
  batch.num_real_tokens = std::accumulate(sequence_lengths.begin(), sequence_lengths.end(), std::int64_t{0});
  batch.num_sequences = static_cast<std::int64_t>(sequence_ids.size());
  batch.num_labels = num_labels;
  batch.host_starts = std::move(sequence_starts);
  return batch;
}

}  // namespace tempo::data
