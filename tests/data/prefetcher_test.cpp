#include "data/prefetcher.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/shard_writer.h"
#include "tests/support/temporary_directory.h"

namespace tempo::data {
namespace {

class PrefetcherTest : public ::testing::Test {
 protected:
  PrefetcherTest() {
    for (const std::int64_t count : {5, 4, 4}) {
      options_.shards.push_back(folder_ / (std::to_string(options_.shards.size()) + ".hdf5"));
      testing::write_shard(options_.shards.back(), testing::numbered_rows(count, 6, 1));
    }
    dataset_ = std::make_unique<Dataset>(options_);
  }

  testing::TemporaryDirectory folder_;
  DatasetOptions options_;
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(PrefetcherTest, GivesTheBatchesOfTheDataSetInOrder) {
  Dataset other(options_);
  Prefetcher batches(*dataset_, {3, 9, 4, 3});  // an epoch is 4 steps, the last one of 1 example
  for (std::int64_t number = 3; number <= 9; ++number) {
    const StepExamples step = batches.next_step();
    const GlobalBatch expected = other.global_batch_at(number, 4);
    EXPECT_EQ(step.examples.epoch, expected.epoch);
    EXPECT_EQ(step.examples.first, expected.first);
    EXPECT_EQ(step.num_labels, other.count_labels(expected));
    for (std::int64_t offset = 0; offset < expected.count; offset += 3) {
      const Batch batch = batches.next_batch().value().to(at::kCPU);
      const Batch same = other.read(expected, offset, std::min<std::int64_t>(3, expected.count - offset)).to(at::kCPU);
      EXPECT_TRUE(at::equal(batch.token_ids, same.token_ids));
      EXPECT_TRUE(at::equal(batch.sequence_ids, same.sequence_ids));
      EXPECT_TRUE(at::equal(batch.labels, same.labels));
    }
    EXPECT_FALSE(batches.next_batch());
  }
}

TEST_F(PrefetcherTest, EndsAtOnceWhereverItIs) {
  { const Prefetcher never_asked(*dataset_, {1, 1'000'000'000, 4, 4}); }
  Prefetcher batches(*dataset_, {1, 1'000'000'000, 4, 4});
  batches.next_step();
  batches.next_batch();
}

TEST_F(PrefetcherTest, RefusesToLeaveAStepHalfTaken) {
  Prefetcher batches(*dataset_, {1, 2, 4, 2});
  batches.next_step();
  batches.next_batch();
  EXPECT_THROW(batches.next_step(), c10::Error);
}

TEST_F(PrefetcherTest, ThrowsWhatReadingFailedWithAfterTheBatchesBefore) {
  options_.shuffle = false;
  dataset_ = std::make_unique<Dataset>(options_);  // holds the last two shards
  std::ofstream(options_.shards[0]) << "no shard any more";
  Prefetcher batches(*dataset_, {3, 5, 4, 4});
  batches.next_step();
  EXPECT_EQ(batches.next_batch()->sequence_ids.size(), 4u);
  batches.next_step();
  EXPECT_EQ(batches.next_batch()->sequence_ids.size(), 1u);
  EXPECT_THROW(batches.next_step(), c10::ValueError);
  EXPECT_THROW(batches.next_step(), c10::ValueError);
}

}  // namespace
}  // namespace tempo::data
