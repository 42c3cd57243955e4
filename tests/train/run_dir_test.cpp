#include "train/run_dir.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::train {
namespace {

TEST(RunDirectory, OverwritingRemovesTheEventFilesAndLeavesOtherThings) {
  const testing::TemporaryDirectory folder;
  { const RunDirectory first(folder / "run", false, "a: 1\n"); }
  for (const char* name : {"events.out.tfevents.1700000000.host.1.0", "metrics.jsonl", "notes.txt"})
    std::ofstream(folder / "run" / name) << "x";
  const RunDirectory second(folder / "run", true, "a: 2\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "run/events.out.tfevents.1700000000.host.1.0"));
  EXPECT_FALSE(std::filesystem::exists(second.metrics_file()));
  EXPECT_TRUE(std::filesystem::exists(folder / "run/notes.txt"));
}

TEST(RunDirectory, BelongsToOneProcessAtATime) {
  const testing::TemporaryDirectory folder;
  {
    const RunDirectory first(folder / "run", false, "a: 1\n");
    const std::string in_use = "run.dir: " + (folder / "run").string() + " is in use by another tempo train";
    EXPECT_EQ(testing::value_error_of([&] { RunDirectory(folder / "run", true, "a: 2\n"); }), in_use);
    EXPECT_EQ(testing::value_error_of([&] { RunDirectory::reopen(folder / "run"); }), in_use);
    EXPECT_TRUE(std::filesystem::exists(first.config_file()));
  }
  EXPECT_NO_THROW(RunDirectory::reopen(folder / "run"));
}

TEST(RunDirectory, OnlyARunIsReopened) {
  const testing::TemporaryDirectory folder;
  EXPECT_NE(testing::value_error_of([&] { RunDirectory::reopen(folder / "gone"); }).find("is no run"),
            std::string::npos);
  EXPECT_NE(testing::value_error_of([&] { RunDirectory::reopen(folder.path()); }).find("is no run"), std::string::npos);
}

}  // namespace
}  // namespace tempo::train
