// The shards of one set (training or validation) while they are written: rows are dealt to them in turn, so that none has
// more than one row more than another, and each holds a sample of the whole corpus.
//
// Not for: making rows (examples.h), the file format (shard_writer.h). Thread rule: deal, write and close by one thread at a
// time; PendingBlock::compress may run anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/examples.h"
#include "data/shard_writer.h"

namespace tempo::data {

/// A full block on its way to its shard.
struct PendingBlock {
  std::size_t shard = 0;
  ExampleRows rows;
  CompressedBlock compressed;
  std::int64_t num_rows = 0;

  /// rows -> compressed.
  void compress();
};

class ShardSet {
 public:
  /// Shard k is `folder` / (`prefix` + "0012" + ".hdf5"). A shard is made with its first row.
  ShardSet(std::filesystem::path folder, std::string prefix, std::int64_t num_shards, std::int64_t sequence_length,
           std::int64_t max_predictions);

  /// Deals rows `order[0]`, `order[1]` ... to the shards, going on where the call before ended; appends the blocks that
  /// became full.
  void deal(const ExampleRows& rows, const std::vector<std::int64_t>& order, std::vector<PendingBlock>& full);

  /// The blocks that are not full, in the order of the shards.
  std::vector<PendingBlock> take_rest();

  /// Blocks of a shard must come in the order in which deal and take_rest gave them.
  void write(const PendingBlock& block);

  /// Closes all shards; `attributes` go into each, with its own counts.
  void close(const Attributes& attributes);

  struct Totals {
    std::int64_t rows = 0;
    std::int64_t real_tokens = 0;
    std::int64_t labels = 0;
    std::int64_t random_next = 0;
  };
  const Totals& totals() const { return totals_; }

  /// Names and rows of the shards that were made.
  std::vector<std::pair<std::filesystem::path, std::int64_t>> files() const;

 private:
  struct OpenShard {
    ExampleRows block;
    Totals totals;
  };

  std::filesystem::path path_of(std::size_t shard) const;

  std::filesystem::path folder_;
  std::string prefix_;
  std::int64_t sequence_length_;
  std::int64_t max_predictions_;
  std::vector<OpenShard> open_;
  std::vector<ShardWriter> writers_;
  std::size_t next_ = 0;
  Totals totals_;
};

}  // namespace tempo::data
