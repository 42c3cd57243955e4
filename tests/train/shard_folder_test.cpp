#include "train/shard_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using testing::value_error_of;
namespace fs = std::filesystem;

class ShardFolderTest : public ::testing::Test {
 protected:
  static void put(const fs::path& path, const std::string& text = "x") {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  static void fill(ShardFolder& folder, const std::vector<fs::path>& shards) {
    for (const fs::path& shard : shards) put(folder.staging() / shard, shard.string());
  }

  void finish(const std::vector<fs::path>& shards, bool overwrite = false) {
    ShardFolder folder(out_, overwrite);
    fill(folder, shards);
    std::string list;
    for (const fs::path& shard : shards) list += (list.empty() ? "" : ",") + ("{\"path\":\"" + shard.string() + "\"}");
    folder.commit(shards, {{"vocab.txt", "[PAD]"}, {kPrepareManifest, "{\"shards\":[" + list + "]}"}});
  }

  std::set<std::string> files() const {
    std::set<std::string> names;
    if (!fs::exists(out_)) return names;
    for (const auto& entry : fs::recursive_directory_iterator(out_)) {
      if (entry.is_regular_file()) names.insert(entry.path().lexically_relative(out_).string());
    }
    return names;
  }

  std::string refusal(bool overwrite = false) const {
    return value_error_of([&] { ShardFolder(out_, overwrite); });
  }

  testing::TemporaryDirectory folder_;
  fs::path out_ = folder_ / "out";
};

TEST_F(ShardFolderTest, ShardsAppearTogetherWithTheManifest) {
  finish({"a.hdf5", "validation/b.hdf5"});
  EXPECT_EQ(files(), (std::set<std::string>{"a.hdf5", "validation/b.hdf5", "vocab.txt", "prepare.json"}));
}

TEST_F(ShardFolderTest, WithoutCommitNothingIsLeft) {
  out_ = folder_ / "several/levels/out";
  {
    ShardFolder folder(out_, false);
    fill(folder, {"a.hdf5"});
  }
  EXPECT_FALSE(fs::exists(folder_ / "several"));
}

TEST_F(ShardFolderTest, AFinishedSetIsReplacedOnlyWhenAsked) {
  finish({"a.hdf5", "b.hdf5"});
  EXPECT_THAT(refusal(), HasSubstr("prepare.overwrite=true"));
  put(out_ / "notes.txt");
  finish({"a.hdf5"}, true);
  EXPECT_EQ(files(), (std::set<std::string>{"a.hdf5", "vocab.txt", "prepare.json", "notes.txt"}));
}

TEST_F(ShardFolderTest, ReplacingThatFailsKeepsTheOldSet) {
  finish({"a.hdf5"});
  {
    ShardFolder folder(out_, true);
    fill(folder, {"b.hdf5"});
  }
  EXPECT_EQ(files(), (std::set<std::string>{"a.hdf5", "vocab.txt", "prepare.json"}));
}

TEST_F(ShardFolderTest, ShardsOfOthersAreNotTouched) {
  put(out_ / "theirs.hdf5");
  EXPECT_THAT(refusal(), HasSubstr("holds .hdf5 files that tempo prepare did not write"));
  EXPECT_THAT(refusal(true), HasSubstr("holds .hdf5 files that tempo prepare did not write"));
  EXPECT_EQ(files(), std::set<std::string>{"theirs.hdf5"});
}

TEST_F(ShardFolderTest, WhatAKilledOneLeftIsRemoved) {
  put(out_ / ".partial/old.hdf5");
  put(out_ / ".partial/validation/old.hdf5");
  finish({"a.hdf5"});
  EXPECT_EQ(files(), (std::set<std::string>{"a.hdf5", "vocab.txt", "prepare.json"}));
}

TEST_F(ShardFolderTest, ShardsThatAKilledOneHadNamedAreRemovedAndNothingElse) {
  put(out_ / ".partial/moving", R"({"shards":[{"path":"old.hdf5"},{"path":"../outside.hdf5"},{"path":"notes.txt"}]})");
  put(out_ / "old.hdf5");
  put(out_ / "notes.txt");
  put(folder_ / "outside.hdf5");
  EXPECT_THAT(value_error_of([&] { ShardFolder::check_shard(out_ / "old.hdf5"); }), HasSubstr("run it again"));
  EXPECT_THAT(value_error_of([&] { ShardFolder::check_shard(out_ / "validation/b.hdf5"); }), HasSubstr("run it again"));
  finish({"a.hdf5"});
  EXPECT_EQ(files(), (std::set<std::string>{"a.hdf5", "vocab.txt", "prepare.json", "notes.txt"}));
  EXPECT_TRUE(fs::exists(folder_ / "outside.hdf5"));
  EXPECT_NO_THROW(ShardFolder::check_shard(out_ / "a.hdf5"));
}

TEST_F(ShardFolderTest, AListOfMovesBesideAManifestIsOutOfDate) {
  finish({"a.hdf5"});
  put(out_ / ".partial/moving", R"({"shards":[{"path":"a.hdf5"}]})");
  EXPECT_NO_THROW(ShardFolder::check_shard(out_ / "a.hdf5"));
  { ShardFolder folder(out_, true); }
  EXPECT_TRUE(fs::exists(out_ / "a.hdf5"));
}

TEST_F(ShardFolderTest, AFolderInUseIsRefused) {
  ShardFolder folder(out_, false);
  EXPECT_THAT(refusal(), HasSubstr("is in use by another tempo prepare"));
  EXPECT_TRUE(fs::exists(folder.staging()));
}

TEST_F(ShardFolderTest, AFileIsNoFolder) {
  put(out_);
  EXPECT_THAT(refusal(), HasSubstr("is a file; a folder is needed"));
}

}  // namespace
}  // namespace tempo::train
