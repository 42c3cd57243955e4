#include "data/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <type_traits>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kSpecials = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";

class VocabularyTest : public ::testing::Test {
 protected:
  Vocabulary read(const std::string& bytes) const {
    std::ofstream(path, std::ios::binary) << bytes;
    return Vocabulary::read(path);
  }

  /// What is said about a file that has to be refused: one line that begins with the file.
  std::string error_of(const std::string& bytes) const {
    std::string error = testing::value_error_of([&] { read(bytes); });
    EXPECT_THAT(error, AllOf(StartsWith(path.string() + ":"), Not(HasSubstr("\n"))));
    return error.substr(std::min(error.size(), path.string().size()));
  }

  testing::TemporaryDirectory folder;
  const std::filesystem::path path = folder / "vocab.txt";
};

TEST_F(VocabularyTest, IdsAreLineNumbersFromZero) {
  const Vocabulary vocabulary = read(kSpecials + "one\n##two\nж\n");
  EXPECT_THAT(vocabulary.tokens(), ElementsAre("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "##two", "ж"));
  EXPECT_EQ(vocabulary.size(), 8);
  EXPECT_EQ(vocabulary.token(6), "##two");
  EXPECT_EQ(vocabulary.find("ж"), 7);
  EXPECT_EQ(vocabulary.find("two"), -1);
  EXPECT_EQ(vocabulary.find(""), -1);
}

TEST_F(VocabularyTest, SpecialTokensMayStandAnywhereButForPad) {
  const SpecialIds specials = read("[PAD]\none\n[MASK]\n[SEP]\ntwo\n[CLS]\n[UNK]\n").specials();
  EXPECT_EQ(specials.pad, 0);
  EXPECT_EQ(specials.mask, 2);
  EXPECT_EQ(specials.sep, 3);
  EXPECT_EQ(specials.cls, 5);
  EXPECT_EQ(specials.unknown, 6);
}

TEST_F(VocabularyTest, LineEndsAreLfOrCrlfAndTheLastMayBeMissing) {
  for (const char* end : {"one\ntwo", "one\r\ntwo", "one\r\ntwo\r\n", "one\ntwo\n", "one\ntwo\n\n", "one\ntwo\n\r\n"}) {
    EXPECT_THAT(read(kSpecials + end).tokens(),
                ElementsAre("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"));
  }
}

TEST_F(VocabularyTest, HashIsThatOfTheBytesOfTheFile) {
  // From sha256sum.
  EXPECT_EQ(read(kSpecials).sha256(), "cc75ba7f9a1247b5c7b9e37ba840347b96122bc1d7257b5dcd7320b36585445a");
  EXPECT_EQ(read("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\n").sha256(),
            "d373f2e56057b1763f0e8007f044306064267e281bb5eb8a80c5025a9b5a8e6c");
}

TEST_F(VocabularyTest, TokensAreFoundAfterAMove) {
  static_assert(!std::is_copy_constructible_v<Vocabulary> && !std::is_copy_assignable_v<Vocabulary>);
  auto first = std::make_unique<Vocabulary>(read(kSpecials + "a\na token too long to lie inside a std::string\n"));
  Vocabulary second = std::move(*first);
  first.reset();
  EXPECT_EQ(second.find("a"), 5);
  EXPECT_EQ(second.find("a token too long to lie inside a std::string"), 6);
}

TEST_F(VocabularyTest, HoldsMoreTokensThanSixteenBitsCount) {
  std::string lines = kSpecials;
  for (int id = 5; id < 70000; ++id) lines += "t" + std::to_string(id) + "\n";
  const Vocabulary vocabulary = read(lines);
  EXPECT_EQ(vocabulary.size(), 70000);
  for (int id : {32767, 32768, 65535, 65536, 69999}) EXPECT_EQ(vocabulary.find("t" + std::to_string(id)), id);
}

TEST_F(VocabularyTest, FilesThatAreNoneAreNamed) {
  const auto error_of_path = [](const std::filesystem::path& file) {
    return testing::value_error_of([&] { Vocabulary::read(file); });
  };
  EXPECT_EQ(error_of_path(path), path.string() + ": No such file or directory");
  EXPECT_THAT(error_of_path(folder.path()), StartsWith(folder.path().string() + ": is not a regular file"));
  EXPECT_THAT(error_of(""), StartsWith(": is empty"));
}

TEST_F(VocabularyTest, DoubledTokenIsReportedWithBothLines) {
  EXPECT_THAT(error_of(kSpecials + "one\ntwo\none\n"),
              AllOf(StartsWith(":8:"), HasSubstr("'one'"), HasSubstr("line 6")));
}

TEST_F(VocabularyTest, EmptyLineIsReportedUnlessItIsTheLast) {
  EXPECT_THAT(error_of(kSpecials + "one\n\ntwo\n"), StartsWith(":7: is empty"));
  EXPECT_THAT(error_of(kSpecials + "\r\ntwo\n"), StartsWith(":6: is empty"));
  EXPECT_THAT(error_of(kSpecials + "one\n\n\n"), StartsWith(":7: is empty"));
}

TEST_F(VocabularyTest, BadUtf8IsReported) {
  // A lone trail byte, an overlong '/', a surrogate, a character beyond the last, one cut off by the line's end.
  for (const char* bytes : {"a\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    EXPECT_EQ(error_of(kSpecials + "one\n" + bytes + "\nthree\n"), ":7: is not UTF-8");
  }
  EXPECT_EQ(read(kSpecials + "\xEF\xBF\xBD\n\xF4\x8F\xBF\xBF\n").size(), 7);  // U+FFFD itself, and the last character
}

TEST_F(VocabularyTest, AllMissingSpecialTokensAreNamedAtOnce) {
  EXPECT_THAT(error_of("[PAD]\none\n[CLS]\n[MASK]\n"), StartsWith(": lacks [UNK] [SEP];"));
  EXPECT_THAT(error_of("one\n"), StartsWith(": lacks [PAD] [UNK] [CLS] [SEP] [MASK];"));
}

TEST_F(VocabularyTest, PadHasToBeTheFirstLine) {
  EXPECT_THAT(error_of("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n"), AllOf(StartsWith(":2: [PAD]"), HasSubstr("line 1")));
}

TEST_F(VocabularyTest, ByteOrderMarkIsReported) {
  EXPECT_THAT(error_of("\xEF\xBB\xBF" + kSpecials), StartsWith(":1: begins with a byte order mark"));
}

}  // namespace
}  // namespace tempo::data
