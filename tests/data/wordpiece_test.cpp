#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "data/tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace tempo::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kUnknown = 1;

std::unique_ptr<Tokenizer> make(const std::vector<std::string>& tokens, bool lowercase = true) {
  const testing::TemporaryDirectory folder;
  std::ofstream stream(folder / "vocab.txt", std::ios::binary);
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) stream << special << '\n';
  for (const std::string& token : tokens) stream << token << '\n';
  stream.close();
  return make_wordpiece(std::make_shared<const Vocabulary>(Vocabulary::read(folder / "vocab.txt")), lowercase);
}

Ids encode(Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::string repeat(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

/// A word's first piece, then another 99 times.
Ids hundred(std::int32_t first, std::int32_t rest) {
  Ids ids(100, rest);
  ids[0] = first;
  return ids;
}

// The vocabulary of case 1 of our cases from public reports: what separates words, what vanishes.
class TextCleaningTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer = make({"one", "line", "##line", "note", "##book", "book", "-", "–"});
};

TEST_F(TextCleaningTest, TabsAndLineBreaksSeparateWords) {
  for (const char* text : {"one\tline", "one\nline", "one\r\nline"}) {
    EXPECT_THAT(encode(*tokenizer, text), ElementsAre(5, 6));
  }
}

TEST_F(TextCleaningTest, UnicodeSpacesSeparateWords) {
  for (const char* space : {"\u00A0", "\u3000", "\u2003"}) {
    EXPECT_THAT(encode(*tokenizer, std::string("note") + space + "book"), ElementsAre(8, 10));
  }
}

TEST_F(TextCleaningTest, InvisibleCharactersVanishAndThePartsJoin) {
  using namespace std::string_literals;
  using namespace std::string_view_literals;
  for (const std::string& gone : {"\0"s, "\a"s, "\uFFFD"s, "\u200B"s, "\u200D"s, "\u00AD"s, "\u2060"s}) {
    EXPECT_THAT(encode(*tokenizer, "note" + gone + "book"), ElementsAre(8, 9));
  }
  for (const char* gone : {"\v", "\xC2\x85"}) {
    EXPECT_THAT(encode(*tokenizer, std::string("one") + gone + "line"), ElementsAre(5, 7));
  }
  EXPECT_THAT(encode(*tokenizer, "\uFEFFone"), ElementsAre(5));
  EXPECT_THAT(encode(*tokenizer, "\a \u200B\0 \uFEFF"sv), IsEmpty());
}

TEST_F(TextCleaningTest, PunctuationOfAnyScriptIsAWord) {
  EXPECT_THAT(encode(*tokenizer, "one-line"), ElementsAre(5, 11, 6));
  EXPECT_THAT(encode(*tokenizer, "one–line"), ElementsAre(5, 12, 6));
  EXPECT_THAT(encode(*tokenizer, "one?line"), ElementsAre(5, kUnknown, 6));
}

TEST_F(TextCleaningTest, BytesThatAreNotUtf8VanishAndTheRestStays) {
  // A lone trail byte, characters cut off, an overlong form, a surrogate, a byte that never occurs.
  for (const char* bad : {"\x80", "\xE2\x82", "\xF0\x9F\x98", "\xC0\xAF", "\xED\xA0\x80", "\xFF"}) {
    EXPECT_THAT(encode(*tokenizer, std::string("note") + bad + "book"), ElementsAre(8, 9));
    EXPECT_THAT(encode(*tokenizer, std::string("one ") + bad), ElementsAre(5));
  }
}

TEST_F(TextCleaningTest, SpecialTokensInTextAreText) {
  EXPECT_THAT(encode(*tokenizer, "[PAD]"), ElementsAre(kUnknown, kUnknown, kUnknown));
}

// The vocabulary of case 2: long words and unknown pieces.
class LongWordTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer = make({"a", "##a", "e", "##e", "ж", "##ж", "hello", "hel", "##lo", "##qq"});
};

TEST_F(LongWordTest, HundredLettersAreAWordAndOneMoreIsNot) {
  EXPECT_EQ(encode(*tokenizer, repeat("a", 100)), hundred(5, 6));
  EXPECT_THAT(encode(*tokenizer, repeat("a", 101)), ElementsAre(kUnknown));
  EXPECT_EQ(encode(*tokenizer, repeat("ж", 100)), hundred(9, 10));  // 200 bytes
  EXPECT_THAT(encode(*tokenizer, repeat("ж", 101)), ElementsAre(kUnknown));
}

TEST_F(LongWordTest, LettersAreCountedAfterAccentsAreStripped) {
  for (const char* letter : {"é", "e\u0301"}) {
    EXPECT_EQ(encode(*tokenizer, repeat(letter, 100)), hundred(7, 8));
    EXPECT_THAT(encode(*tokenizer, repeat(letter, 101)), ElementsAre(kUnknown));
  }
}

TEST_F(LongWordTest, WordWithAnUnknownPartIsUnknownAsAWhole) {
  EXPECT_THAT(encode(*tokenizer, "helqq hello"), ElementsAre(12, 14, 11));
  EXPECT_THAT(encode(*tokenizer, "hellozz"), ElementsAre(kUnknown));
  EXPECT_THAT(encode(*tokenizer, "hel😀lo"), ElementsAre(kUnknown));
}

TEST_F(LongWordTest, FiveMillionLettersTakeLinearTime) {
  // Quadratic time would be days. Marks that vanish, and marks that are sorted, are the other ways to get there.
  EXPECT_THAT(encode(*tokenizer, repeat("a", 5000000)), ElementsAre(kUnknown));
  EXPECT_THAT(encode(*tokenizer, "a" + repeat("\u0301", 5000000)), ElementsAre(5));
  EXPECT_THAT(encode(*tokenizer, "a" + repeat("\U0001D16D\U0001D165", 1000000)), ElementsAre(kUnknown));
}

TEST(WordPiece, CasedTextKeepsCaseAndAccents) {
  const auto tokenizer = make({"e", "E", "é", "É", "##\u0301"}, false);
  EXPECT_THAT(encode(*tokenizer, "e E é É e\u0301"), ElementsAre(5, 6, 7, 8, 5, 9));
}

TEST(WordPiece, UncasedTextLosesCaseAndAccents) {
  const auto tokenizer = make({"e", "i", "σ", "##σ", "=", "ᄀ", "##ᅡ", "##ᆨ"});
  EXPECT_THAT(encode(*tokenizer, "e E é É e\u0301 İ"), ElementsAre(5, 5, 5, 5, 5, 6));
  EXPECT_THAT(encode(*tokenizer, "ΣΣ"), ElementsAre(7, 8));        // no final sigma
  EXPECT_THAT(encode(*tokenizer, "e≠e"), ElementsAre(5, 9, 5));    // = and a stroke: punctuation
  EXPECT_THAT(encode(*tokenizer, "각가"), ElementsAre(kUnknown));  // nothing continues with ᄀ
  EXPECT_THAT(encode(*tokenizer, "각 가"), ElementsAre(10, 11, 12, 10, 11));
}

TEST(WordPiece, IdeographsAreWords) {
  const auto tokenizer = make({"中", "文", "豈", "a", "##文"});
  EXPECT_THAT(encode(*tokenizer, "a中文a"), ElementsAre(8, 5, 6, 8));
  EXPECT_THAT(encode(*tokenizer, "中\uF900"), ElementsAre(5, 7));  // a compatibility ideograph becomes its unified one
}

TEST(WordPiece, MarksThatSurviveAreSortedByCombiningClass) {
  const auto tokenizer = make({"a\U0001D165\U0001D16D", "a\U0001D16D\U0001D165"});
  EXPECT_THAT(encode(*tokenizer, "a\U0001D165\U0001D16D"), ElementsAre(5));
  EXPECT_THAT(encode(*tokenizer, "a\U0001D16D\U0001D165"), ElementsAre(5));
  EXPECT_THAT(encode(*tokenizer, "a\U0001D16D\u0301\U0001D165"), ElementsAre(5));  // an accent that vanishes, class 230
  EXPECT_THAT(encode(*tokenizer, "a\U0001D16D\u034F\U0001D165"), ElementsAre(6));  // a joiner that vanishes, class 0
  EXPECT_THAT(encode(*tokenizer, "a\U0001D16D\u200B\U0001D165"), ElementsAre(5));  // vanishes before marks are sorted
}

TEST(WordPiece, LongestPieceWins) {
  const auto tokenizer = make({"un", "unaff", "##able", "##aff", "##a", "##b"});
  EXPECT_THAT(encode(*tokenizer, "unaffable"), ElementsAre(6, 7));
  EXPECT_THAT(encode(*tokenizer, "unaffab"), ElementsAre(6, 9, 10));
  EXPECT_THAT(encode(*tokenizer, "unab"), ElementsAre(5, 9, 10));
}

TEST(WordPiece, VocabularyWithoutContinuationsHasWholeWordsOnly) {
  const auto tokenizer = make({"one", "on"});
  EXPECT_THAT(encode(*tokenizer, "one ones"), ElementsAre(5, kUnknown));
}

TEST(WordPiece, IdsAreAppended) {
  const auto tokenizer = make({"one"});
  Ids ids = {42};
  tokenizer->encode("one", ids);
  tokenizer->encode("", ids);
  tokenizer->encode("one", ids);
  EXPECT_THAT(ids, ElementsAre(42, 5, 5));
}

TEST(WordPiece, CacheNeverChangesIds) {
  // 100,000 words for 32,768 places, of 6 to 36 bytes and 2 to 12 ids, so that some are not kept; each twice.
  std::vector<std::string> tokens;
  for (const char* prefix : {"", "##"}) {
    for (int number = 1000; number < 2000; ++number) tokens.push_back(prefix + std::to_string(number).substr(1));
  }
  const auto tokenizer = make(tokens);
  std::string text;
  Ids expected;
  for (int number = 0; number < 100000; ++number) {
    const std::string digits = std::to_string(1000000 + number).substr(1);
    for (int time = 0; time < 2; ++time) {
      for (int part = 0; part <= number % 6; ++part) {
        text += digits;
        expected.push_back((part == 0 ? 5 : 1005) + number / 1000);
        expected.push_back(1005 + number % 1000);
      }
      text += ' ';
    }
  }
  EXPECT_EQ(encode(*tokenizer, text), expected);
}

TEST(WordPiece, CacheComparesAllBytesOfAWord) {
  // Words of one beginning for three times as many as there are places: whatever lies there has that beginning too.
  std::vector<std::string> tokens;
  for (int number = 1000; number < 2000; ++number) tokens.push_back("##" + std::to_string(number).substr(1));
  for (const int length : {2, 10, 18, 26}) tokens.push_back(repeat("a", length));
  const auto tokenizer = make(tokens);
  for (int beginning = 0; beginning < 4; ++beginning) {
    std::string text;
    Ids expected;
    for (int number = 0; number < 100000; ++number) {
      text += tokens[1000 + beginning] + std::to_string(1000000 + number).substr(1) + ' ';
      expected.insert(expected.end(), {1005 + beginning, 5 + number / 1000, 5 + number % 1000});
    }
    EXPECT_EQ(encode(*tokenizer, text), expected);
  }
}

TEST(WordPiece, WordsThatDifferInTheirLastByteOnlyAreToldApart) {
  const auto tokenizer = make({"a", "##a", "##b"});
  for (int length = 1; length < 40; ++length) {
    const std::string word = repeat("a", length);
    Ids first(length + 1, 6);
    first[0] = 5;
    Ids second = first;
    second.back() = 7;
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(encode(*tokenizer, word + "a"), first);
      EXPECT_EQ(encode(*tokenizer, word + "b"), second);
      EXPECT_EQ(encode(*tokenizer, word + "a " + repeat("- ", 40)).front(), 5);
    }
  }
}

TEST(WordPiece, TextNeedNotBeFollowedByAnything) {
  const auto tokenizer = make({"one", "##s"});
  const std::vector<char> exact = {'o', 'n', 'e', ' ', 'o', 'n', 'e', 's', ' ', '\xE2', '\x82'};
  for (std::size_t size = 0; size <= exact.size(); ++size) {
    const std::vector<char> text(exact.begin(),
                                 exact.begin() + static_cast<std::ptrdiff_t>(size));  // asan watches its end
    encode(*tokenizer, {text.data(), text.size()});
  }
  EXPECT_THAT(encode(*tokenizer, {exact.data(), exact.size()}), ElementsAre(5, 5, 6));
}

TEST(WordPiece, CloneGivesTheSameIdsAndOutlivesItsOrigin) {
  auto tokenizer = make({"one", "##s"});
  const Vocabulary* vocabulary = &tokenizer->vocabulary();
  const auto clone = tokenizer->clone();
  EXPECT_EQ(&clone->vocabulary(), vocabulary);
  encode(*tokenizer, "one");
  tokenizer.reset();
  EXPECT_THAT(encode(*clone, "ones one"), ElementsAre(5, 6, 5));
  EXPECT_EQ(clone->vocabulary().token(5), "one");
}

TEST(WordPiece, PiecesAfterTheFirstContinueAWord) {
  const auto tokenizer = make({"one", "##s", "##", "#", "#s"});
  Ids continuing;
  for (std::int32_t id = 0; id < tokenizer->vocabulary().size(); ++id) {
    if (tokenizer->continues_word(id)) continuing.push_back(id);
  }
  EXPECT_THAT(continuing, ElementsAre(6));
}

TEST(WordPiece, LargeVocabularyGivesLargeIds) {
  std::vector<std::string> tokens;
  for (int id = 5; id < 70000; ++id) tokens.push_back("t" + std::to_string(id));
  const auto tokenizer = make(tokens);
  EXPECT_THAT(encode(*tokenizer, "t32767 t32768 t65535 t65536 t69999"), ElementsAre(32767, 32768, 65535, 65536, 69999));
}

}  // namespace
}  // namespace tempo::data
