#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/written_config.h"
#include "train/run_config.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using testing::value_error_of;
using testing::WrittenConfig;

/// A run directory with the resolved configuration of a minimal run.
class ResumedConfigTest : public ::testing::Test {
 protected:
  ResumedConfigTest() { written_.write("moved/config.yaml", resolved_yaml(written_.load())); }

  RunConfig load(const std::vector<std::string>& overrides) {
    return load_resumed_config(written_.folder() / "moved", overrides, changes_);
  }

  WrittenConfig written_{testing::minimal_yaml()};
  std::vector<ConfigChange> changes_;
};

TEST_F(ResumedConfigTest, IsThatOfTheRunWhereverItLies) {
  const RunConfig config = load({});
  EXPECT_TRUE(changes_.empty());
  EXPECT_EQ(config.run.dir, written_.folder() / "moved");
  EXPECT_EQ(config.train.steps, 10);
}

TEST_F(ResumedConfigTest, ChangesAreListedWithBothValues) {
  const RunConfig config = load({"train.steps=20", "optimizer.lr=0.5", "train.threads=0"});
  EXPECT_EQ(config.train.steps, 20);
  ASSERT_EQ(changes_.size(), 2u);
  EXPECT_EQ(changes_[0].key + " " + changes_[0].before + " " + changes_[0].after, "train.steps 10 20");
  EXPECT_EQ(changes_[1].key, "optimizer.lr");
}

TEST_F(ResumedConfigTest, WhatDecidesWeightsAndOrderIsFixed) {
  for (const char* override : {"train.seed=7", "train.global_batch=16", "data.shuffle=false", "optimizer.name=lamb",
                               "model.hidden_dropout=0.2", "data.shards=other.hdf5"}) {
    EXPECT_THAT(value_error_of([&] { load({override}); }), HasSubstr("cannot be changed in a run that goes on"))
        << override;
  }
  EXPECT_NO_THROW(load({"train.seed=42"}));  // the same
}

TEST_F(ResumedConfigTest, OverwriteMeansNothingToARunThatGoesOn) {
  written_.write("moved/config.yaml", resolved_yaml(written_.load({"run.overwrite=true"})));
  EXPECT_FALSE(load({}).run.overwrite);
}

}  // namespace
}  // namespace tempo::train
