// A micro-batch while it is put together: in plain host memory, outside the counted allocator, by any thread.
//
// Not for: which rows (dataset.h). Thread rule: a value.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "data/shard.h"

namespace tempo::data {

/// The fields of a padded Batch, which says what they are.
struct HostBatch {
  std::vector<std::int64_t> token_ids, position_ids, token_types, sequence_starts, sequence_lengths, sequence_ids,
      label_positions, labels, next_sentence;
  std::int64_t num_labels = 0;  ///< labels that are not kIgnoreLabel

  /// Empty, with room for so many rows.
  HostBatch(std::int64_t num_sequences, std::int64_t sequence_length, std::int64_t max_predictions);

  /// Appends a row with its number in the data set; it gets `max_predictions` label slots, of which it may use fewer.
  void add(const Shard& shard, std::int64_t row, std::int64_t example, std::int64_t max_predictions);

  /// Of the tensors that it becomes.
  std::int64_t num_bytes() const;

  /// As tensors on `device`; on the meta device only their shapes. Takes sequence_starts along.
  Batch to(c10::Device device) &&;
};

}  // namespace tempo::data
