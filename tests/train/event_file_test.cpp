#include "train/event_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/temporary_directory.h"

namespace tempo::train {
namespace {

std::string hex_of(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Written by hand and read back by TensorBoard.
TEST(ScalarRecord, HasTheBytesThatTensorBoardReads) {
  EXPECT_EQ(hex_of(scalar_record(1700000000.5, 1, {{"loss", 2.5}})),
            "1a00000000000000129bd82d0900002040fc54d94110012a0d0a0b0a046c6f7373150000204035622330");
}

TEST(ScalarRecord, LeavesOutStepZeroAndHoldsAnyNumberOfScalars) {
  const std::string one = scalar_record(1, 0, {{"a", 1}});
  EXPECT_EQ(one.size(), scalar_record(1, 5, {{"a", 1}}).size() - 2);
  EXPECT_EQ(scalar_record(1, 0, {{"a", 1}, {"b", 2}}).size(),
            one.size() + 10);  // value, tag and number with their heads
}

TEST(EventFile, BeginsWithTheVersionAndGrowsWithEveryRecord) {
  const testing::TemporaryDirectory folder;
  EventFile file(folder.path());
  const std::string name = file.path().filename().string();
  EXPECT_EQ(name.rfind("events.out.tfevents.", 0), 0u);
  const std::string opening = contents(file.path());
  EXPECT_EQ(opening.size(), 8 + 4 + 24 + 4u);  // length, checksum, event, checksum
  EXPECT_EQ(opening.substr(23, 13), "brain.Event:2");
  file.write(7, {{"loss", 2.5}});
  EXPECT_EQ(contents(file.path()).size(), opening.size() + 42);
}

TEST(EventFile, TakesANameOfItsOwn) {
  const testing::TemporaryDirectory folder;
  const EventFile one(folder.path());
  const EventFile other(folder.path());
  EXPECT_NE(one.path(), other.path());
}

TEST(EventFile, NamesTheFileThatCannotBeWritten) {
  const testing::TemporaryDirectory folder;
  try {
    const EventFile file(folder / "gone");
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace()).find("gone/events.out.tfevents."), std::string::npos);
  }
}

}  // namespace
}  // namespace tempo::train
