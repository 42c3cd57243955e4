// Writes HDF5 shards for tests: whole ones, of any integer type and layout, and ones with a single thing wrong.
// A target that includes this needs HDF5's include folder and library.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace tempo::testing {

/// The six datasets of a shard, row after row.
struct ShardRows {
  std::int64_t sequence_length = 0;
  std::int64_t max_predictions = 0;
  std::vector<std::int64_t> input_ids;             ///< [N, S]
  std::vector<std::int64_t> input_mask;            ///< [N, S]
  std::vector<std::int64_t> segment_ids;           ///< [N, S]
  std::vector<std::int64_t> masked_lm_positions;   ///< [N, P]
  std::vector<std::int64_t> masked_lm_ids;         ///< [N, P]
  std::vector<std::int64_t> next_sentence_labels;  ///< [N]

  std::int64_t num_rows() const { return static_cast<std::int64_t>(next_sentence_labels.size()); }

  /// Adds a row: `ids` (padded with 0), of which `length` are real and those from `second_segment` on are of segment 1.
  void add(std::vector<std::int64_t> ids, std::int64_t second_segment, std::int64_t length,
           std::vector<std::int64_t> positions, std::vector<std::int64_t> labels, std::int64_t next_sentence) {
    ids.resize(sequence_length, 0);
    positions.resize(max_predictions, 0);
    labels.resize(max_predictions, 0);
    for (std::int64_t slot = 0; slot < sequence_length; ++slot) {
      input_mask.push_back(slot < length ? 1 : 0);
      segment_ids.push_back(slot >= second_segment && slot < length ? 1 : 0);
    }
    input_ids.insert(input_ids.end(), ids.begin(), ids.end());
    masked_lm_positions.insert(masked_lm_positions.end(), positions.begin(), positions.end());
    masked_lm_ids.insert(masked_lm_ids.end(), labels.begin(), labels.end());
    next_sentence_labels.push_back(next_sentence);
  }
};

/// Rows A, B, C, D of fixture F1 (vocabulary 16, 2 token types, S = 10, P = 4).
inline ShardRows fixture_f1_rows() {
  ShardRows rows;
  rows.sequence_length = 10;
  rows.max_predictions = 4;
  rows.add({2, 5, 6, 4, 3, 7, 8, 3}, 5, 8, {3}, {9}, 0);
  rows.add({2, 15, 4, 3, 4, 8, 3}, 4, 7, {2, 4}, {6, 7}, 0);
  rows.add({2, 6, 4, 8, 4, 3, 5, 4, 3}, 6, 9, {2, 4, 7}, {7, 10, 12}, 1);
  rows.add({2, 4, 10, 4, 3, 4, 12, 4, 14, 3}, 5, 10, {1, 3, 5, 7}, {5, 11, 9, 13}, 1);
  return rows;
}

/// `count` rows of which every token names its row and slot: ids 1 + (row * S + slot) mod `vocab_size` - 1.
inline ShardRows numbered_rows(std::int64_t count, std::int64_t sequence_length, std::int64_t max_predictions,
                               std::int64_t vocab_size = 30522) {
  ShardRows rows;
  rows.sequence_length = sequence_length;
  rows.max_predictions = max_predictions;
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<std::int64_t> ids(sequence_length);
    for (std::int64_t slot = 0; slot < sequence_length; ++slot) {
      ids[slot] = 1 + (row * sequence_length + slot) % (vocab_size - 1);
    }
    rows.add(ids, sequence_length / 2, sequence_length, {1}, {ids[1]}, row % 2);
  }
  return rows;
}

enum class ShardLayout { kContiguous, kChunked, kGzip };

/// Creates one dataset; the file is opened for writing, or created.
inline void write_dataset(const std::filesystem::path& path, const std::string& name, const std::vector<hsize_t>& shape,
                          const std::vector<std::int64_t>& values, hid_t type = H5T_STD_I32LE,
                          ShardLayout layout = ShardLayout::kContiguous) {
  const hid_t file = std::filesystem::exists(path) ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                                                   : H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t size = std::accumulate(shape.begin(), shape.end(), hsize_t{1}, std::multiplies<>());
  if (layout != ShardLayout::kContiguous && size != 0) {
    std::vector<hsize_t> chunk = shape;  // across both axes, as h5py's automatic chunks
    for (hsize_t& extent : chunk) extent = (extent + 2) / 3;
    H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    if (layout == ShardLayout::kGzip) H5Pset_deflate(creation, 4);
  }
  const hid_t dataset = H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  // A u8 file takes the bits as they are, so that values of 2^63 and more can be written too.
  const bool is_uint64 =
      H5Tget_class(type) == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_NONE && H5Tget_size(type) == 8;
  const hid_t memory_type = is_uint64 ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
  const herr_t result =
      values.empty() ? 0 : H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  if (H5Fclose(file) < 0 || result < 0 || dataset < 0) throw std::runtime_error("cannot write " + path.string());
}

inline void delete_dataset(const std::filesystem::path& path, const std::string& name) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const herr_t result = H5Ldelete(file, name.c_str(), H5P_DEFAULT);
  if (H5Fclose(file) < 0 || result < 0) throw std::runtime_error("cannot delete " + name + " from " + path.string());
}

/// Writes all six datasets, each stored as `type`.
inline void write_shard(const std::filesystem::path& path, const ShardRows& rows, hid_t type = H5T_STD_I32LE,
                        ShardLayout layout = ShardLayout::kContiguous) {
  const auto count = static_cast<hsize_t>(rows.num_rows());
  const auto length = static_cast<hsize_t>(rows.sequence_length);
  const auto slots = static_cast<hsize_t>(rows.max_predictions);
  write_dataset(path, "input_ids", {count, length}, rows.input_ids, type, layout);
  write_dataset(path, "input_mask", {count, length}, rows.input_mask, type, layout);
  write_dataset(path, "segment_ids", {count, length}, rows.segment_ids, type, layout);
  write_dataset(path, "masked_lm_positions", {count, slots}, rows.masked_lm_positions, type, layout);
  write_dataset(path, "masked_lm_ids", {count, slots}, rows.masked_lm_ids, type, layout);
  write_dataset(path, "next_sentence_labels", {count}, rows.next_sentence_labels, type, layout);
}

}  // namespace tempo::testing
