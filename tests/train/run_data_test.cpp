#include "train/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/shard_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using testing::value_error_of;

/// A folder with shards of length 10 (a, b) and 12 (long), and a configuration that trains on a.
class OpenData : public ::testing::Test {
 protected:
  OpenData() {
    testing::write_shard(folder_ / "a.hdf5", testing::fixture_f1_rows());
    testing::write_shard(folder_ / "b.hdf5", testing::numbered_rows(5, 10, 2, 16));
    testing::write_shard(folder_ / "long.hdf5", testing::numbered_rows(5, 12, 2, 16));
    config_.model.vocab_size = 16;
    config_.model.max_positions = 12;
    config_.data.shards = {path("a.hdf5")};
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string error_with(const std::string& validation) {
    config_.data.validation = {path(validation)};
    return value_error_of([&] { open_data(config_); });
  }

  testing::TemporaryDirectory folder_;
  RunConfig config_;
};

TEST_F(OpenData, HoldsNothingOutUnlessAsked) { EXPECT_EQ(open_data(config_).validation, nullptr); }

TEST_F(OpenData, KeepsHeldOutSequencesInTheirOrder) {
  config_.data.validation = {path("b.hdf5")};
  const RunData data = open_data(config_);
  EXPECT_EQ(data.training->num_examples(), 4);
  ASSERT_EQ(data.validation->num_examples(), 5);
  for (std::int64_t index = 0; index < 5; ++index) EXPECT_EQ(data.validation->example_at(0, index), index);
}

TEST_F(OpenData, RefusesAFileThatIsTrainedOnWhateverItsName) {
  EXPECT_EQ(error_with("a.hdf5"), "data.validation: " + path("a.hdf5") +
                                      " is one of data.shards too; what is held out must not be trained on");
  std::filesystem::create_symlink(path("a.hdf5"), path("link.hdf5"));
  EXPECT_THAT(error_with("link.hdf5"), HasSubstr("link.hdf5 is one of data.shards too"));
}

TEST_F(OpenData, RefusesHeldOutSequencesOfAnotherLength) {
  EXPECT_EQ(error_with("long.hdf5"), "data.validation: " + path("long.hdf5") +
                                         ": has sequence length 12, but the sequences of training have 10");
}

TEST_F(OpenData, NamesTheKeyThatMatchesNothing) {
  EXPECT_EQ(error_with("none*.hdf5"), "data.validation: nothing matches \"" + path("none*.hdf5") + "\"");
}

TEST_F(OpenData, ChecksTheIdsOfHeldOutRows) {
  testing::write_shard(folder_ / "large.hdf5", testing::numbered_rows(5, 10, 2, 30));
  EXPECT_THAT(error_with("large.hdf5"), HasSubstr("large.hdf5"));
}

}  // namespace
}  // namespace tempo::train
