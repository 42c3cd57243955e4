// One micro-batch of pre-training examples, as tensors.
//
// It is ragged: tokens of all sequences lie one after another, and `sequence_starts` says where each begins. A padded
// batch is the special case in which every sequence has the same number of slots; `sequence_lengths` then says how many
// of them are real. Only attention and the loss look at lengths; everything else works on T rows.
// The number of label slots M is fixed (num_sequences x max_predictions), so that every shape is known without looking
// at data: nothing in a step has to wait for the device, and the same step runs on the meta device.
//
// Not for: shards or order (shard.h, dataset.h). Thread rule: a value; tensors are shared, not copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tempo::data {

/// The label of a slot that carries none; the loss skips it. Equal to PyTorch's default ignore_index.
inline constexpr std::int64_t kIgnoreLabel = -100;

/// T: token slots, B: sequences, M: label slots. All tensors are int64, contiguous and on one device.
struct Batch {
  at::Tensor token_ids;        ///< [T] vocabulary ids
  at::Tensor position_ids;     ///< [T] rows of the position table
  at::Tensor token_types;      ///< [T] segment ids
  at::Tensor sequence_starts;  ///< [B+1] first slot of each sequence; the last entry is T
  at::Tensor
      sequence_lengths;     ///< [B] real tokens of each sequence; later slots are padding, which no query attends to
  at::Tensor sequence_ids;  ///< [B] number of the example in the data set; keys dropout (docs/operators.md)
  at::Tensor
      label_positions;       ///< [M] flat slot in T; the first slot of its own sequence where the label is kIgnoreLabel
  at::Tensor labels;         ///< [M] original ids, or kIgnoreLabel
  at::Tensor next_sentence;  ///< [B] 1 where the second segment is random; undefined for models without that head

  // Known on the host, so that no step has to ask the device.
  std::int64_t num_tokens = 0;            ///< T
  std::int64_t num_real_tokens = 0;       ///< sum of sequence_lengths
  std::int64_t num_sequences = 0;         ///< B
  std::int64_t num_labels = 0;            ///< labels that are not kIgnoreLabel
  std::vector<std::int64_t> host_starts;  ///< [B+1] sequence_starts
};

}  // namespace tempo::data
