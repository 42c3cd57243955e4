#include "data/shard_writer.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "data/shard.h"
#include "tests/support/temporary_directory.h"

namespace tempo::data {
namespace {

constexpr std::int64_t kLength = 1024;  // 32 rows a block
constexpr std::int64_t kPredictions = 6;

/// Rows first ... first + count - 1 of a set in which every value names its row.
ExampleRows numbered(std::int64_t first, std::int64_t count) {
  ExampleRows rows;
  rows.sequence_length = kLength;
  rows.max_predictions = kPredictions;
  for (std::int64_t row = first; row < first + count; ++row) {
    const auto length = static_cast<std::int32_t>(10 + row % (kLength - 10));
    for (std::int32_t slot = 0; slot < kLength; ++slot) {
      rows.input_ids.push_back(slot < length ? static_cast<std::int32_t>(1 + (row * 97 + slot) % 70'000) : 0);
    }
    const auto num_labels = static_cast<std::int32_t>(1 + row % kPredictions);
    for (std::int32_t slot = 0; slot < kPredictions; ++slot) {
      rows.masked_lm_positions.push_back(slot < num_labels ? slot + 1 : 0);
      rows.masked_lm_ids.push_back(slot < num_labels ? 69'000 + slot : 0);
    }
    rows.lengths.push_back(length);
    rows.second_starts.push_back(length / 2);
    rows.num_labels.push_back(num_labels);
    rows.next_sentence_labels.push_back(static_cast<std::int8_t>(row % 2));
  }
  return rows;
}

void write(const std::filesystem::path& path, std::int64_t num_rows) {
  ShardWriter writer(path, kLength, kPredictions);
  const std::int64_t block = rows_per_block(kLength);
  for (std::int64_t first = 0; first < num_rows; first += block) {
    const std::int64_t count = std::min(block, num_rows - first);
    writer.write(compress_block(numbered(first, count), block), count);
  }
  writer.close({{"seed", std::int64_t{42}}, {"share", 0.15}, {"name", std::string("wordpiece")}});
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

class ShardWriterTest : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(ShardWriterTest, WhatIsWrittenIsRead) {
  const testing::TemporaryDirectory folder;
  write(folder / "s.hdf5", GetParam());
  const Shard shard = read_shard(folder / "s.hdf5", {70'001, 2});
  const ExampleRows rows = numbered(0, GetParam());
  EXPECT_EQ(shard.shape.sequence_length, kLength);
  EXPECT_EQ(shard.shape.max_predictions, kPredictions);
  EXPECT_EQ(shard.input_ids, rows.input_ids);
  EXPECT_EQ(shard.lengths, rows.lengths);
  EXPECT_EQ(shard.masked_lm_positions, rows.masked_lm_positions);
  EXPECT_EQ(shard.masked_lm_ids, rows.masked_lm_ids);
  EXPECT_EQ(shard.num_labels, rows.num_labels);
  for (std::int64_t row = 0; row < GetParam(); ++row) {
    EXPECT_EQ(shard.next_sentence_labels[row], row % 2);
    for (std::int64_t slot = 0; slot < kLength; ++slot) {
      const bool is_second = slot >= rows.second_starts[row] && slot < rows.lengths[row];
      ASSERT_EQ(shard.segment_ids[row * kLength + slot], is_second ? 1 : 0) << row << ", " << slot;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, ShardWriterTest, ::testing::Values(1, 31, 32, 33, 64, 100));

TEST(ShardWriterBytesTest, AreEqualForEqualRows) {
  const testing::TemporaryDirectory folder;
  write(folder / "a.hdf5", 70);
  write(folder / "b.hdf5", 70);
  EXPECT_TRUE(bytes_of(folder / "a.hdf5") == bytes_of(folder / "b.hdf5"));
}

TEST(ShardWriterBytesTest, AFolderThatIsNotThereIsNamed) {
  try {
    ShardWriter("/nowhere/at/all.hdf5", kLength, kPredictions);
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace()).find("/nowhere/at/all.hdf5: cannot be made"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tempo::data
