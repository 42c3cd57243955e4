#include "data/dataset.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/support/shard_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::fixture_f1_rows;
using ::testing::HasSubstr;
using testing::numbered_rows;
using testing::ShardRows;
using testing::TemporaryDirectory;
using testing::write_shard;

constexpr std::int64_t kLength = 4;  // S of the numbered shards

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

class DatasetTest : public ::testing::Test {
 protected:
  /// Writes shards of the given numbers of rows, called 0.hdf5, 1.hdf5, ...
  void write_numbered(const std::vector<std::int64_t>& row_counts) {
    for (const std::int64_t count : row_counts) {
      options.shards.push_back(folder / (std::to_string(options.shards.size()) + ".hdf5"));
      write_shard(options.shards.back(), numbered_rows(count, kLength, 1));
    }
  }

  void write_f1() {
    options.shards = {folder / "f1.hdf5"};
    options.limits = {16, 2};
    options.shuffle = false;
    write_shard(options.shards.front(), fixture_f1_rows());
  }

  std::string error() const {
    return testing::value_error_of([&] { Dataset{options}; });
  }

  TemporaryDirectory folder;
  DatasetOptions options;
};

std::vector<std::int64_t> order_of(const Dataset& dataset, std::int64_t epoch) {
  std::vector<std::int64_t> order(dataset.num_examples());
  for (std::size_t index = 0; index < order.size(); ++index) order[index] = dataset.example_at(epoch, index);
  return order;
}

bool visits_each_once(std::vector<std::int64_t> order) {
  std::sort(order.begin(), order.end());
  for (std::size_t index = 0; index < order.size(); ++index) {
    if (order[index] != static_cast<std::int64_t>(index)) return false;
  }
  return true;
}

TEST_F(DatasetTest, NumbersExamplesByRowOverTheShardsSortedByPath) {
  write_numbered({3, 0, 2});
  std::reverse(options.shards.begin(), options.shards.end());
  options.shuffle = false;
  Dataset dataset(options);
  EXPECT_EQ(dataset.num_examples(), 5);
  EXPECT_THAT(order_of(dataset, 0), ElementsAre(0, 1, 2, 3, 4));
  const Batch batch = dataset.read({0, 0, 5}, 0, 5).to(at::kCPU);
  EXPECT_THAT(values(batch.sequence_ids), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(values(batch.token_ids.view({5, kLength}).select(1, 0)), ElementsAre(1, 5, 9, 1, 5));
}

TEST_F(DatasetTest, EveryEpochVisitsEachExampleOnce) {
  write_numbered({1, 7, 0, 12, 3});
  const Dataset dataset(options);
  for (std::int64_t epoch = 0; epoch < 50; ++epoch) EXPECT_TRUE(visits_each_once(order_of(dataset, epoch))) << epoch;
}

TEST_F(DatasetTest, ShardsAreVisitedOneAfterAnother) {
  write_numbered({4, 4, 4});
  const Dataset dataset(options);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto order = order_of(dataset, epoch);
    for (std::size_t index = 0; index < 12; ++index) EXPECT_EQ(order[index] / 4, order[index - index % 4] / 4);
  }
}

TEST_F(DatasetTest, ShufflesAnyNumberOfRowsWithoutLossOrRepeat) {
  for (std::int64_t rows = 1; rows <= 300; ++rows) {
    options.shards.clear();
    const auto path = folder / "rows.hdf5";
    std::filesystem::remove(path);
    write_shard(path, numbered_rows(rows, 2, 1));
    options.shards = {path};
    const Dataset dataset(options);
    EXPECT_TRUE(visits_each_once(order_of(dataset, 0))) << rows;
    EXPECT_TRUE(visits_each_once(order_of(dataset, 1))) << rows;
  }
}

TEST_F(DatasetTest, ShufflesManyRowsWithoutLossOrRepeat) {
  const std::int64_t rows = 100'003;
  options.shards = {folder / "many.hdf5"};
  write_shard(options.shards.front(), numbered_rows(rows, 2, 1));
  const Dataset dataset(options);
  const auto order = order_of(dataset, 3);
  EXPECT_TRUE(visits_each_once(order));
  // Neighbours in the order are strangers in the file: the mean distance of two random rows is a third of the file.
  double distance = 0;
  for (std::int64_t index = 1; index < rows; ++index) distance += std::abs(order[index] - order[index - 1]);
  EXPECT_NEAR(distance / (rows - 1) / rows, 1.0 / 3, 0.01);
}

TEST_F(DatasetTest, EveryOrderOfFewRowsOrShardsIsEquallyLikely) {
  for (const auto& row_counts : {std::vector<std::int64_t>{3}, std::vector<std::int64_t>{1, 1, 1}}) {
    options.shards.clear();
    std::filesystem::remove(folder / "0.hdf5");
    write_numbered(row_counts);
    const Dataset dataset(options);
    std::map<std::vector<std::int64_t>, int> counts;
    for (std::int64_t epoch = 0; epoch < 6000; ++epoch) ++counts[order_of(dataset, epoch)];
    EXPECT_EQ(counts.size(), 6U);
    for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);  // five standard deviations of 29
  }
}

TEST_F(DatasetTest, OrderDependsOnSeedEpochAndShardOnly) {
  write_numbered({50, 50});
  const Dataset dataset(options);
  EXPECT_EQ(order_of(dataset, 2), order_of(Dataset(options), 2));
  EXPECT_NE(order_of(dataset, 2), order_of(dataset, 1));
  // The two shards are not in the same order.
  auto first = order_of(dataset, 0);
  auto second = std::vector<std::int64_t>(first.begin() + 50, first.end());
  first.resize(50);
  for (auto* half : {&first, &second}) {
    for (auto& example : *half) example %= 50;
  }
  EXPECT_NE(first, second);
  DatasetOptions other = options;
  other.seed = 1;
  EXPECT_NE(order_of(dataset, 2), order_of(Dataset(other), 2));
}

// A run that is resumed by a later version must go on with the same examples: these may never change. The values were
// found again by a Python program written from the description in dataset.cpp.
TEST_F(DatasetTest, OrderIsFrozen) {
  write_numbered({5, 7});
  options.seed = 42;
  const Dataset dataset(options);
  EXPECT_THAT(order_of(dataset, 0), ElementsAre(4, 2, 3, 1, 0, 6, 10, 8, 11, 9, 5, 7));
  EXPECT_THAT(order_of(dataset, 1), ElementsAre(0, 3, 4, 1, 2, 8, 9, 11, 6, 10, 5, 7));
}

TEST_F(DatasetTest, StepsCutTheEpochIntoGlobalBatchesWithAShortLastOne) {
  write_numbered({7, 3});
  const Dataset dataset(options);
  const auto at = [&](std::int64_t step, std::int64_t global_batch) {
    const GlobalBatch batch = dataset.global_batch_at(step, global_batch);
    return std::vector<std::int64_t>{batch.epoch, batch.first, batch.count};
  };
  EXPECT_THAT(at(1, 4), ElementsAre(0, 0, 4));
  EXPECT_THAT(at(2, 4), ElementsAre(0, 4, 4));
  EXPECT_THAT(at(3, 4), ElementsAre(0, 8, 2));
  EXPECT_THAT(at(4, 4), ElementsAre(1, 0, 4));
  EXPECT_THAT(at(3'000'000'003, 4), ElementsAre(1'000'000'000, 8, 2));
  EXPECT_THAT(at(2, 5), ElementsAre(0, 5, 5));
  EXPECT_THAT(at(3, 5), ElementsAre(1, 0, 5));
  EXPECT_THAT(at(3, 1'000'000), ElementsAre(2, 0, 10));
}

TEST_F(DatasetTest, LoadsF1AsAPaddedBatch) {
  write_f1();
  Dataset dataset(options);
  EXPECT_EQ(dataset.sequence_length(), 10);
  EXPECT_EQ(dataset.max_predictions(), 4);
  EXPECT_EQ(dataset.count_labels({0, 0, 4}), 10);
  EXPECT_EQ(dataset.count_labels({0, 1, 2}), 5);
  const Batch batch = dataset.read({0, 0, 4}, 1, 2).to(at::kCPU);  // rows B and C
  EXPECT_THAT(values(batch.token_ids), ElementsAre(2, 15, 4, 3, 4, 8, 3, 0, 0, 0, 2, 6, 4, 8, 4, 3, 5, 4, 3, 0));
  EXPECT_THAT(values(batch.position_ids), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(values(batch.token_types), ElementsAre(0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0));
  EXPECT_THAT(values(batch.sequence_starts), ElementsAre(0, 10, 20));
  EXPECT_THAT(values(batch.sequence_lengths), ElementsAre(7, 9));
  EXPECT_THAT(values(batch.sequence_ids), ElementsAre(1, 2));
  EXPECT_THAT(values(batch.label_positions), ElementsAre(2, 4, 0, 0, 12, 14, 17, 10));
  EXPECT_THAT(values(batch.labels), ElementsAre(6, 7, kIgnoreLabel, kIgnoreLabel, 7, 10, 12, kIgnoreLabel));
  EXPECT_THAT(values(batch.next_sentence), ElementsAre(0, 1));
  EXPECT_EQ(batch.num_tokens, 20);
  EXPECT_EQ(batch.num_real_tokens, 16);
  EXPECT_EQ(batch.num_sequences, 2);
  EXPECT_EQ(batch.num_labels, 5);
  EXPECT_THAT(batch.host_starts, ElementsAre(0, 10, 20));
}

TEST_F(DatasetTest, MetaBatchHasTheShapesAndTheHostCounts) {
  write_f1();
  Dataset dataset(options);
  const Batch host = dataset.read({0, 0, 4}, 0, 3).to(at::kCPU);
  const Batch meta = dataset.read({0, 0, 4}, 0, 3).to(at::kMeta);
  const auto tensors = [](const Batch& batch) {
    return std::vector<at::Tensor>{batch.token_ids,       batch.position_ids,     batch.token_types,
                                   batch.sequence_starts, batch.sequence_lengths, batch.sequence_ids,
                                   batch.label_positions, batch.labels,           batch.next_sentence};
  };
  for (std::size_t i = 0; i < tensors(host).size(); ++i) {
    EXPECT_TRUE(tensors(meta)[i].is_meta());
    EXPECT_EQ(tensors(meta)[i].sizes(), tensors(host)[i].sizes());
    EXPECT_EQ(tensors(meta)[i].scalar_type(), at::kLong);
  }
  EXPECT_EQ(meta.num_real_tokens, 24);
  EXPECT_EQ(meta.num_labels, 6);
  EXPECT_EQ(meta.num_tokens, 30);
  EXPECT_THAT(meta.host_starts, ElementsAre(0, 10, 20, 30));
}

TEST_F(DatasetTest, BatchOfNoExamplesIsEmpty) {
  write_f1();
  Dataset dataset(options);
  const Batch batch = dataset.read({0, 0, 4}, 4, 0).to(at::kCPU);
  EXPECT_EQ(batch.token_ids.numel(), 0);
  EXPECT_THAT(values(batch.sequence_starts), ElementsAre(0));
  EXPECT_THAT(batch.host_starts, ElementsAre(0));
  EXPECT_THROW(dataset.read({0, 0, 4}, 3, 2).to(at::kCPU), c10::Error);
}

TEST_F(DatasetTest, MicroBatchesTogetherAreTheGlobalBatch) {
  write_numbered({6, 5, 4});
  Dataset dataset(options);
  for (std::int64_t step = 1; step <= 4; ++step) {
    const GlobalBatch global = dataset.global_batch_at(step, 9);
    std::vector<at::Tensor> parts;
    for (std::int64_t offset = 0; offset < global.count; offset += 2) {
      parts.push_back(
          dataset.read(global, offset, std::min<std::int64_t>(2, global.count - offset)).to(at::kCPU).token_ids);
    }
    EXPECT_TRUE(at::equal(at::cat(parts), dataset.read(global, 0, global.count).to(at::kCPU).token_ids));
  }
}

TEST_F(DatasetTest, RowsKeepTheirContentsUnderShuffling) {
  write_numbered({20, 30});
  Dataset dataset(options);
  const Batch batch = dataset.read({5, 0, 50}, 0, 50).to(at::kCPU);
  const auto ids = values(batch.sequence_ids);
  const auto tokens = values(batch.token_ids);
  for (std::int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(ids[i], dataset.example_at(5, i));
    const std::int64_t row = ids[i] < 20 ? ids[i] : ids[i] - 20;
    EXPECT_EQ(tokens[i * kLength], 1 + row * kLength);
  }
}

TEST_F(DatasetTest, WiderLabelRowsThanTheShardsAreFilledWithIgnoredSlots) {
  write_f1();
  options.max_predictions = 6;
  Dataset dataset(options);
  EXPECT_EQ(dataset.max_predictions(), 6);
  const Batch batch = dataset.read({0, 3, 1}, 0, 1).to(at::kCPU);  // row D
  EXPECT_THAT(values(batch.label_positions), ElementsAre(1, 3, 5, 7, 0, 0));
  EXPECT_THAT(values(batch.labels), ElementsAre(5, 11, 9, 13, kIgnoreLabel, kIgnoreLabel));
  options.max_predictions = 3;
  EXPECT_THAT(error(),
              AllOf(HasSubstr("f1.hdf5"), HasSubstr("has 4 predictions per sequence; at most the configured 3")));
}

TEST_F(DatasetTest, ShardsOfDifferentLabelWidthsShareTheWidest) {
  write_f1();
  ShardRows narrow;
  narrow.sequence_length = 10;
  narrow.max_predictions = 2;
  narrow.add({2, 4, 3}, 3, 3, {1}, {5}, 0);
  options.shards.push_back(folder / "narrow.hdf5");
  write_shard(options.shards.back(), narrow);
  Dataset dataset(options);
  const Batch batch = dataset.read({0, 3, 2}, 0, 2).to(at::kCPU);
  EXPECT_THAT(values(batch.label_positions), ElementsAre(1, 3, 5, 7, 11, 10, 10, 10));
}

TEST_F(DatasetTest, RefusesAListThatIsEmptyOrHasNoRows) {
  EXPECT_THAT(error(), HasSubstr("the list of shards is empty"));
  write_numbered({0, 0});
  EXPECT_THAT(error(), AllOf(HasSubstr("0.hdf5"), HasSubstr("has no rows, nor has any other shard")));
}

TEST_F(DatasetTest, RefusesAShardThatIsListedTwice) {
  write_numbered({2});
  options.shards.push_back(options.shards.front());
  EXPECT_THAT(error(), HasSubstr("is listed twice"));
}

TEST_F(DatasetTest, NamesTheShardOfAnotherSequenceLength) {
  write_numbered({2, 2});
  write_f1();
  options.limits = {};
  options.shards.push_back(folder / "0.hdf5");
  EXPECT_THAT(error(), AllOf(HasSubstr("f1.hdf5: has sequence length 10"), HasSubstr("0.hdf5 has 4")));
  options.shards = {folder / "f1.hdf5"};
  options.sequence_length = 128;
  EXPECT_THAT(error(), HasSubstr("f1.hdf5: has sequence length 10, but the configured one is 128"));
}

TEST_F(DatasetTest, ChecksTheRowsOfEveryShardAtOnce) {
  write_numbered({2, 2, 2});
  ShardRows rows = numbered_rows(2, kLength, 1);
  rows.input_ids[5] = -7;
  std::filesystem::remove(options.shards[1]);
  write_shard(options.shards[1], rows);
  EXPECT_THAT(error(), AllOf(HasSubstr("1.hdf5: input_ids: row 1, slot 1"), HasSubstr("-7")));
}

TEST_F(DatasetTest, RefusesAMiddleShardThatIsCutOrEmpty) {
  write_numbered({2, 2, 2});
  std::filesystem::resize_file(options.shards[1], std::filesystem::file_size(options.shards[1]) / 2);
  EXPECT_THAT(error(), AllOf(HasSubstr("1.hdf5"), HasSubstr("truncated")));
  std::filesystem::resize_file(options.shards[1], 0);
  EXPECT_THAT(error(), HasSubstr("1.hdf5: is empty"));
}

TEST_F(DatasetTest, NoticesAShardThatChangedDuringTheRun) {
  write_numbered({2, 2, 2});
  Dataset dataset(options);  // shards 1 and 2 are still in memory, shard 0 is not
  std::filesystem::remove(options.shards[0]);
  write_shard(options.shards[0], numbered_rows(3, kLength, 1));
  EXPECT_THROW(dataset.read({0, 0, 6}, 0, 6).to(at::kCPU), c10::ValueError);
}

}  // namespace
}  // namespace tempo::data
