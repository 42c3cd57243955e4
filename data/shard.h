// Reads one HDF5 pre-training shard in the layout of NVIDIA DeepLearningExamples (docs/formats.md, "Shards").
//
// A shard is loaded whole and then indexed: its chunks lie across both axes, so that reading single rows would inflate a
// column of chunks for each (measured 2.3 ms a row against 0.07 s for 20,000 rows).
//
// Not for: order, batches or several shards (dataset.h). Thread rule: a loaded Shard is immutable and may be read from any
// thread; loading takes HDF5's own global lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tempo::data {

/// Named values that are stored with a shard, as attributes of the file's root.
using Attributes = std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>>;

/// The attribute that names the vocabulary of the ids: SHA-256 of its file. NVIDIA's shards have none.
inline constexpr const char* kTokenizerHash = "tokenizer_sha256";

/// What the header of a shard says, without its rows.
struct ShardShape {
  std::int64_t num_rows = 0;
  std::int64_t sequence_length = 0;  ///< S
  std::int64_t max_predictions = 0;  ///< P
};

/// What the ids of a shard must stay below; 0 means any.
struct ShardLimits {
  std::int64_t vocab_size = 0;
  std::int64_t type_vocab_size = 0;
};

/// The rows of a shard in host memory (outside the counted allocator), narrowed to what the values need.
struct Shard {
  std::filesystem::path path;
  ShardShape shape;
  std::vector<std::int32_t> input_ids;             ///< [N, S]
  std::vector<std::int32_t> lengths;               ///< [N] real tokens; the mask is a prefix of ones
  std::vector<std::int32_t> segment_ids;           ///< [N, S]
  std::vector<std::int32_t> masked_lm_positions;   ///< [N, P]; entries from num_labels on are 0
  std::vector<std::int32_t> masked_lm_ids;         ///< [N, P]; likewise
  std::vector<std::int32_t> num_labels;            ///< [N] positions before the first 0
  std::vector<std::int32_t> next_sentence_labels;  ///< [N]
};

/// Opens the file, checks that the six datasets are there with agreeing shapes and integer types, and reads no rows.
/// Throws c10::ValueError naming the file and the dataset.
ShardShape read_shard_shape(const std::filesystem::path& path);

/// The attributes that are whole numbers, real numbers or text, in the order of their names; others are left out.
Attributes read_attributes(const std::filesystem::path& path);

/// Reads and checks a whole shard. Any stored integer type is accepted (i1 ... u8).
/// Throws c10::ValueError naming file, dataset and row where a token id, segment, position, label or mask cannot be right
/// or passes `limits`.
Shard read_shard(const std::filesystem::path& path, const ShardLimits& limits);

/// The version of HDF5 that is loaded: "1.10.8".
std::string hdf5_version();

}  // namespace tempo::data
