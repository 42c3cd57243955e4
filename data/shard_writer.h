// Writes one HDF5 pre-training shard in the layout of NVIDIA DeepLearningExamples (docs/formats.md, "Shards").
//
// Rows come in blocks of a fixed number, each a chunk of every dataset. A block is compressed first (compress_block, on any
// thread) and then handed to the file as it is, so that compression runs on all cores although HDF5 runs on one. Equal
// blocks in equal order give equal bytes: no times are stored.
// Not for: which rows (prepare.h), names and renaming (a shard under construction should have another name).
// Thread rule: a ShardWriter belongs to one thread at a time; compress_block may run anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/examples.h"
#include "data/shard.h"

namespace tempo::data {

/// The chunks of one block, as they stand in the file.
struct CompressedBlock {
  std::vector<std::vector<std::uint8_t>> columns;
};

/// Rows of one block: for S = 128, 256 rows; always 128 KiB of token ids before compression, at least one row.
std::int64_t rows_per_block(std::int64_t sequence_length);

/// Filters and compresses at most `block_rows` rows; the missing ones become zeros, as they would be in HDF5.
CompressedBlock compress_block(const ExampleRows& rows, std::int64_t block_rows);

class ShardWriter {
 public:
  /// Makes the file, in place of one that has the name. Throws c10::Error naming the file, as all members do.
  ShardWriter(std::filesystem::path path, std::int64_t sequence_length, std::int64_t max_predictions);
  ~ShardWriter();
  ShardWriter(ShardWriter&&) noexcept;

  /// Appends a block of `num_rows` rows. Only the last one of a shard may have fewer than rows_per_block.
  void write(const CompressedBlock& block, std::int64_t num_rows);

  std::int64_t num_rows() const;
  const std::filesystem::path& path() const;

  /// Writes what HDF5 still holds, with the attributes. Without it the file is not a shard.
  void close(const Attributes& attributes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tempo::data
