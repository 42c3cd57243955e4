// The examples of a run: which rows make up which step, and the batches themselves.
//
// Examples are numbered by their row over the shards sorted by path. An epoch visits each once; with shuffling the order
// of the shards and of the rows inside each is a permutation keyed by (seed, epoch), computed without state and without
// memory, so that a run can start at any step at once. Shards are visited one after another: at most two are in memory.
// The last global batch of an epoch is short: nothing is dropped, nothing comes from the next epoch.
//
// Not for: reading files (shard.h), the split of a global batch over ranks (train/). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/host_batch.h"
#include "data/shard.h"

namespace tempo::data {

struct DatasetOptions {
  std::vector<std::filesystem::path> shards;  ///< files, already expanded
  std::int64_t sequence_length = 0;           ///< 0: that of the shards; otherwise all shards must have it
  std::int64_t max_predictions = 0;           ///< 0: that of the shards; otherwise at least that of every shard
  ShardLimits limits;
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// Called after each shard whose rows have been checked, with how many are done and how many there are. Where it says false the
  /// others stay unchecked: the object then tells numbers and shapes, but no batches and labels.
  std::function<bool(std::size_t, std::size_t)> on_checked;
};

/// Examples [first, first + count) in the order of `epoch` (both from 0): what one optimizer step consumes.
struct GlobalBatch {
  std::int64_t epoch = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class Dataset {
 public:
  /// Opens every shard and checks all its rows. Throws c10::ValueError naming the file at fault, or the list when it is
  /// empty, names a file twice or two shards disagree about S or about
  /// their vocabulary. Shards without rows are allowed as long as there is one
  /// row in all.
  explicit Dataset(DatasetOptions options);
  ~Dataset();

  std::int64_t num_examples() const;
  std::int64_t sequence_length() const;
  std::int64_t max_predictions() const;

  /// SHA-256 of the vocabulary that the shards were made with; empty where none of them says so.
  const std::string& tokenizer_sha256() const;

  /// The examples of the 1-based `step` when every step takes `global_batch` of them: arithmetic only.
  GlobalBatch global_batch_at(std::int64_t step, std::int64_t global_batch) const;

  /// The number (row over the sorted shards) of the example at `index` of `epoch`.
  std::int64_t example_at(std::int64_t epoch, std::int64_t index) const;

  /// Labels that count in those examples: the denominator of their MLM loss.
  std::int64_t count_labels(const GlobalBatch& batch) const;

  /// A padded batch of examples [offset, offset + count) of `batch`.
  HostBatch read(const GlobalBatch& batch, std::int64_t offset, std::int64_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tempo::data
