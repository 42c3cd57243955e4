#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"
#include "train/run_config.h"

namespace tempo::train {
namespace {

using ::testing::ElementsAre;
using testing::value_error_of;

/// A folder with shards, and what expand_shards makes of patterns relative to it.
class ExpandShards : public ::testing::Test {
 protected:
  ExpandShards() {
    for (const char* name :
         {"b.hdf5", "a.hdf5", "c.h5", "a-1.hdf5", "readme.txt", ".hidden.hdf5", "a/z.hdf5", "old[1]/x.hdf5"}) {
      const std::filesystem::path path = folder_ / "shards" / name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << "";
    }
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::vector<std::string> expand(const std::vector<std::string>& patterns) const {
    std::vector<std::string> paths;
    for (const std::string& pattern : patterns) paths.push_back(path(pattern));
    std::vector<std::string> names;
    for (const auto& shard : expand_shards("data.shards", paths))
      names.push_back(shard.lexically_relative(folder_.path()).string());
    return names;
  }

  testing::TemporaryDirectory folder_;
};

TEST_F(ExpandShards, PatternsAreSortedByPathAndEachFileComesOnce) {
  EXPECT_THAT(expand({"shards/b.hdf5", "shards/*.hdf5", "shards/?.hdf5"}),
              ElementsAre("shards/a-1.hdf5", "shards/a.hdf5", "shards/b.hdf5"));
}

TEST_F(ExpandShards, SortsByteByByteLikeTheNamesOfFiles) {
  EXPECT_THAT(expand({"shards/a/z.hdf5", "shards/a-1.hdf5"}), ElementsAre("shards/a-1.hdf5", "shards/a/z.hdf5"));
}

TEST_F(ExpandShards, AFolderStandsForItsShards) {
  EXPECT_THAT(expand({"shards"}), ElementsAre("shards/a-1.hdf5", "shards/a.hdf5", "shards/b.hdf5", "shards/c.h5"));
  EXPECT_THAT(expand({"shards/a*"}), ElementsAre("shards/a-1.hdf5", "shards/a.hdf5", "shards/a/z.hdf5"));
}

TEST_F(ExpandShards, BracketsAreNoWildcards) {
  EXPECT_THAT(expand({"shards/old[1]/*.hdf5"}), ElementsAre("shards/old[1]/x.hdf5"));
}

TEST_F(ExpandShards, NamesThePatternThatMatchesNothing) {
  EXPECT_EQ(value_error_of([&] {
              expand({"shards/*.hdf5", "shards/none*.hdf5"});
            }),
            "data.shards: nothing matches \"" + path("shards/none*.hdf5") + "\"");
  EXPECT_EQ(value_error_of([&] { expand({"gone.hdf5"}); }),
            "data.shards: nothing matches \"" + path("gone.hdf5") + "\"");
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(value_error_of([&] { expand({"empty"}); }),
            "data.shards: \"" + path("empty") + "\" holds none of *.hdf5, *.h5");
  EXPECT_EQ(value_error_of([&] { expand_shards("data.validation", {path("gone.hdf5")}); }),
            "data.validation: nothing matches \"" + path("gone.hdf5") + "\"");
}

TEST_F(ExpandShards, AFolderOfTextStandsForTheTextInItAndBelow) {
  for (const char* name : {"text/b.txt", "text/a.txt.gz", "text/inner/c.rst.gz", "text/inner/d.md", "text/.hidden.txt",
                           "text/e.pdf", "text/.git/f.txt.gz", "text/bert/vocab.txt"}) {
    const std::filesystem::path file = folder_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << "";
  }
  std::vector<std::string> names;
  for (const auto& file : expand_inputs("prepare.input", {path("text"), path("text/e.pdf")})) {
    names.push_back(file.lexically_relative(folder_ / "text").string());
  }
  EXPECT_THAT(names, ElementsAre("a.txt.gz", "b.txt", "e.pdf", "inner/c.rst.gz", "inner/d.md"));
  EXPECT_EQ(
      value_error_of([&] { expand_inputs("prepare.input", {path("shards/a")}); }),
      "prepare.input: \"" + path("shards/a") + "\" holds none of *.txt, *.txt.gz, *.md, *.md.gz, *.rst, *.rst.gz");
}

}  // namespace
}  // namespace tempo::train
