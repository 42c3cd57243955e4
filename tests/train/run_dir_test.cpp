#include "train/run_dir.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

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

}  // namespace
}  // namespace tempo::train
