#include "data/sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tempo::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> split(SentenceRule rule, std::string_view text) {
  std::vector<std::string> sentences;
  SentenceSplitter(rule).split(text, [&](std::string_view sentence) { sentences.emplace_back(sentence); });
  return sentences;
}

TEST(SentenceSplitterTest, EndsSentencesByUnicodesRules) {
  EXPECT_THAT(split(SentenceRule::kIcu, "It rained. Did it? It did! And then\n"),
              ElementsAre("It rained. ", "Did it? ", "It did! ", "And then"));
}

TEST(SentenceSplitterTest, AbbreviationsEndNoSentence) {
  EXPECT_THAT(split(SentenceRule::kIcu, "Mr. Darcy met Mrs. Bennet. She smiled.\n"),
              ElementsAre("Mr. Darcy met Mrs. Bennet. ", "She smiled."));
}

TEST(SentenceSplitterTest, ALineEndIsASpaceAndABlankLineEndsASentence) {
  EXPECT_THAT(split(SentenceRule::kIcu, "It is a truth\nuniversally\r\nacknowledged\n \t\nChapter 2\n"),
              ElementsAre("It is a truth universally acknowledged", "Chapter 2"));
}

TEST(SentenceSplitterTest, OtherScriptsAreCutAtTheirOwnStops) {
  EXPECT_THAT(split(SentenceRule::kIcu, "\u4ECA\u65E5\u306F\u3002\u660E\u65E5\u306F\u3002\n"),
              ElementsAre("\u4ECA\u65E5\u306F\u3002", "\u660E\u65E5\u306F\u3002"));
}

TEST(SentenceSplitterTest, ByLinesEveryLineWithTextIsASentence) {
  EXPECT_THAT(split(SentenceRule::kLines, "One. Two.\n\n  \nthree\nfour"), ElementsAre("One. Two.", "three", "four"));
}

TEST(SentenceSplitterTest, WhiteSpaceHoldsNoSentence) {
  for (const auto rule : {SentenceRule::kIcu, SentenceRule::kLines}) {
    EXPECT_THAT(split(rule, ""), IsEmpty());
    EXPECT_THAT(split(rule, " \n\t\n"), IsEmpty());
  }
}

TEST(SentenceSplitterTest, IsUsedAgainWithoutRemembering) {
  SentenceSplitter splitter(SentenceRule::kIcu);
  std::vector<std::string> sentences;
  const auto accept = [&](std::string_view sentence) { sentences.emplace_back(sentence); };
  splitter.split("no end", accept);
  splitter.split("A second text.", accept);
  EXPECT_THAT(sentences, ElementsAre("no end", "A second text."));
}

struct Repair {
  std::string text;
  std::string repaired;
  std::int64_t count;
};

TEST(RepairUtf8Test, ReplacesEachMaximalPartThatIsNotUtf8) {
  const std::string mark = "\uFFFD";
  const Repair cases[] = {
      {"plain text of more than eight bytes", "plain text of more than eight bytes", 0},
      {"caf\u00E9 \U0001F600", "caf\u00E9 \U0001F600", 0},
      {"caf\xE9 and more text", "caf" + mark + " and more text", 1},  // Latin-1
      {"12345678\xFF\xFE"
       "90",
       "12345678" + mark + mark + "90", 2},  // never in UTF-8
      {"a\xF0\x9F\x98", "a" + mark, 1},      // cut off: one part
      {"a\xF0\x9F\x98"
       "b",
       "a" + mark + "b", 1},
      {"\xC0\x80", mark + mark, 2},             // overlong
      {"\xED\xA0\x80", mark + mark + mark, 3},  // surrogate
      {std::string("a\0b", 3), std::string("a\0b", 3), 0},
  };
  for (const Repair& item : cases) {
    std::string text = item.text;
    EXPECT_EQ(repair_utf8(text), item.count) << ::testing::PrintToString(item.text);
    EXPECT_EQ(text, item.repaired);
  }
}

}  // namespace
}  // namespace tempo::data
