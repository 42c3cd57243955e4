#include "model/durable_file.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/temporary_directory.h"

namespace tempo::model {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(DurableFile, AppearsOnlyWhenItIsCommitted) {
  const testing::TemporaryDirectory folder;
  const fs::path path = folder.path() / "file";
  write_durable_text(path, "old");
  {
    DurableFile file(path);
    file.write("half");
    EXPECT_EQ(content(path), "old");
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
  DurableFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(content(path), "new");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(DurableFile, NamesPathAndReasonWhenTheFolderIsMissing) {
  try {
    write_durable_text("/nowhere/at/all", "x");
    FAIL();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    EXPECT_NE(message.find("/nowhere/at/all"), std::string::npos);
    EXPECT_NE(message.find("No such file"), std::string::npos);
  }
}

// LibTorch exports a std::filesystem of its own; were it found first, this would call a null pointer (cmake/Torch.cmake).
TEST(DurableFolder, LeavesNothingBehindWithoutCommit) {
  const testing::TemporaryDirectory folder;
  const fs::path target = folder.path() / "parent" / "target";
  {
    DurableFolder unfinished(target);
    fs::create_directories(unfinished.path() / "deep" / "er");
    write_durable_text(unfinished.path() / "deep" / "file", "x");
  }
  EXPECT_FALSE(fs::exists(target));
  EXPECT_EQ(entries(folder.path() / "parent"), 0u);
  DurableFolder finished(target / "");  // a trailing slash names the same folder
  write_durable_text(finished.path() / "file", "x");
  finished.commit();
  EXPECT_EQ(content(target / "file"), "x");
  EXPECT_THROW(DurableFolder{target}, c10::ValueError);
}

}  // namespace
}  // namespace tempo::model
