#include "data/examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/written_vocabulary.h"

namespace tempo::data {
namespace {

constexpr std::int32_t kCls = 2;
constexpr std::int32_t kSep = 3;

/// A document of sentences of `length` tokens, whose ids name document, sentence and place: id = 5 + number.
TokenDocument numbered_document(std::int64_t number, std::int64_t num_sentences, std::int64_t length,
                                std::int32_t first_id) {
  TokenDocument document;
  document.document = number;
  document.piece = static_cast<std::uint64_t>(number);
  for (std::int64_t sentence = 0; sentence < num_sentences; ++sentence) {
    for (std::int64_t token = 0; token < length; ++token) document.ids.push_back(first_id++);
    document.sentence_starts.push_back(static_cast<std::int32_t>(document.ids.size()));
  }
  return document;
}

/// A row with the masking undone.
struct Row {
  std::vector<std::int32_t> one;
  std::vector<std::int32_t> two;
  bool is_random = false;
};

class ExamplesTest : public ::testing::Test {
 protected:
  ExamplesTest() {
    rules_.sequence_length = 128;
    rules_.masking.max_predictions = 20;
  }

  /// Makes rows and checks what holds for every row.
  std::vector<Row> make(const std::vector<TokenDocument>& documents, std::size_t first = 0) {
    Masker masker(*tokenizer_, rules_.masking);
    ExampleRows rows;
    counts_ = make_examples(documents, first, rules_, masker, rows);
    std::vector<Row> result;
    for (std::int64_t row = 0; row < rows.num_rows(); ++row) result.push_back(checked_row(rows, row));
    return result;
  }

  Row checked_row(const ExampleRows& rows, std::int64_t row) const {
    const std::int64_t width = rows.sequence_length;
    std::vector<std::int32_t> ids(rows.input_ids.begin() + row * width, rows.input_ids.begin() + (row + 1) * width);
    EXPECT_GE(rows.num_labels[row], 1);
    for (std::int64_t slot = 0; slot < rows.max_predictions; ++slot) {
      const std::int64_t at = row * rows.max_predictions + slot;
      if (slot < rows.num_labels[row]) {
        ids[rows.masked_lm_positions[at]] = rows.masked_lm_ids[at];
      } else {
        EXPECT_EQ(rows.masked_lm_positions[at], 0);
        EXPECT_EQ(rows.masked_lm_ids[at], 0);
      }
    }
    const std::int32_t length = rows.lengths[row];
    const std::int32_t second = rows.second_starts[row];
    EXPECT_EQ(ids[0], kCls);
    EXPECT_EQ(ids[second - 1], kSep);
    EXPECT_EQ(ids[length - 1], kSep);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), kCls), 1);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), kSep), 2);
    EXPECT_TRUE(std::all_of(ids.begin() + length, ids.end(), [](std::int32_t id) { return id == 0; }));
    Row result{{ids.begin() + 1, ids.begin() + second - 1},
               {ids.begin() + second, ids.begin() + length - 1},
               rows.next_sentence_labels[row] == 1};
    EXPECT_FALSE(result.one.empty());
    EXPECT_FALSE(result.two.empty());
    return result;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = testing::tokenizer_of(testing::numbered_words(20'000));
  ExampleRules rules_;
  ExampleCounts counts_;
};

std::vector<std::int32_t> rising(const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> expected(ids.size());
  for (std::size_t at = 0; at < ids.size(); ++at) expected[at] = ids.front() + static_cast<std::int32_t>(at);
  return expected;
}

// Case 4 of our cases from public reports: 40 documents of 6 lines of 2 words, 20 passes.
TEST_F(ExamplesTest, PairsAreTrueSuccessorsOrFromAnotherDocument) {
  rules_.duplicates = 20;
  std::vector<TokenDocument> documents;
  for (std::int32_t number = 0; number < 40; ++number)
    documents.push_back(numbered_document(number, 6, 2, 5 + 12 * number));
  const std::vector<Row> rows = make(documents);
  double random = 0;
  for (const Row& row : rows) {
    EXPECT_EQ(row.one, rising(row.one));
    EXPECT_EQ(row.two, rising(row.two));
    const std::int32_t one = (row.one.front() - 5) / 12;
    const std::int32_t two = (row.two.front() - 5) / 12;
    if (row.is_random) {
      EXPECT_NE(one, two);
    } else {
      EXPECT_EQ(one, two);
      EXPECT_EQ(row.two.front(), row.one.back() + 1);
    }
    random += row.is_random ? 1 : 0;
  }
  // The original algorithm gives about 0.57: a last line alone must take a random partner.
  EXPECT_GT(random / static_cast<double>(rows.size()), 0.53);
  EXPECT_LT(random / static_cast<double>(rows.size()), 0.61);
  EXPECT_EQ(counts_.lone_sentences, 0);
}

TEST_F(ExamplesTest, EveryPassUsesEveryTokenOfALongDocumentAsFirstOrTrueSecondSegment) {
  rules_.duplicates = 1;
  rules_.short_share = 0;
  const std::vector<Row> rows = make({numbered_document(0, 300, 7, 5), numbered_document(1, 5, 7, 5000)});
  std::vector<int> seen(300 * 7);
  for (const Row& row : rows) {
    if (row.one.front() >= 5000) continue;
    for (const std::int32_t id : row.one) ++seen[id - 5];
    if (row.is_random) continue;
    for (const std::int32_t id : row.two) ++seen[id - 5];
  }
  // Only truncation loses tokens: at most a sentence less one token for each true pair.
  EXPECT_GT(std::count(seen.begin(), seen.end(), 1), 300 * 7 * 95 / 100);
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](int count) { return count > 1; }), 0);
}

TEST_F(ExamplesTest, RowsAreFullButForShortPassesAndEnds) {
  rules_.duplicates = 200;
  rules_.short_share = 0.25;
  const std::vector<Row> rows =
      make({numbered_document(0, 40, 10, 5), numbered_document(1, 40, 10, 1000), numbered_document(2, 40, 10, 2000)});
  double short_rows = 0;
  for (const Row& row : rows) {
    EXPECT_LE(row.one.size() + row.two.size(), 125u);
    short_rows += row.one.size() + row.two.size() < 100 ? 1 : 0;
  }
  EXPECT_GT(short_rows / static_cast<double>(rows.size()), 0.25);
}

TEST_F(ExamplesTest, LongSentencesAreCutAtBothEnds) {
  rules_.duplicates = 50;
  rules_.short_share = 0;
  rules_.sequence_length = 32;
  bool cut_front = false;
  bool cut_back = false;
  for (const Row& row : make({numbered_document(0, 2, 200, 5), numbered_document(1, 2, 200, 1000)})) {
    EXPECT_EQ(row.one.size() + row.two.size(), 29u);
    EXPECT_LE(std::max(row.one.size(), row.two.size()), 15u);
    cut_front = cut_front || (row.one.front() - 5) % 200 != 0;
    cut_back = cut_back || (row.one.back() - 5) % 200 != 199;
  }
  EXPECT_TRUE(cut_front && cut_back);
}

TEST_F(ExamplesTest, OneDocumentAloneGivesTrueSuccessorsOnly) {
  const std::vector<Row> rows = make({numbered_document(0, 9, 10, 5)});
  for (const Row& row : rows) {
    EXPECT_FALSE(row.is_random);
    EXPECT_EQ(row.two.front(), row.one.back() + 1);
  }
  EXPECT_GT(counts_.pairs_without_other_document, 0);
  EXPECT_EQ(make({numbered_document(0, 1, 10, 5)}).size(), 0u);
  EXPECT_EQ(counts_.lone_sentences, rules_.duplicates);
}

TEST_F(ExamplesTest, PiecesOfOneDocumentAreNotOtherDocuments) {
  TokenDocument piece = numbered_document(0, 9, 10, 5);
  TokenDocument next_piece = numbered_document(0, 9, 10, 500);
  next_piece.piece = 1;
  for (const Row& row : make({piece, next_piece})) EXPECT_FALSE(row.is_random);
}

TEST_F(ExamplesTest, RepeatedDocumentsOnlyLendRandomSegments) {
  const std::vector<Row> rows = make({numbered_document(0, 9, 10, 5), numbered_document(1, 9, 10, 500)}, 1);
  bool borrowed = false;
  for (const Row& row : rows) {
    EXPECT_GE(row.one.front(), 500);
    borrowed = borrowed || row.two.front() < 500;
  }
  EXPECT_TRUE(borrowed);
}

TEST_F(ExamplesTest, APieceGivesTheSameRowsWhateverElseIsThere) {
  const TokenDocument one = numbered_document(0, 9, 10, 5);
  const TokenDocument two = numbered_document(1, 9, 10, 500);
  Masker masker(*tokenizer_, rules_.masking);
  rules_.duplicates = 1;
  ExampleRows first;
  ExampleRows again;
  make_examples({one, two}, 1, rules_, masker, first);
  make_examples({one, two}, 0, rules_, masker, again);
  const std::vector<std::int32_t> tail(again.input_ids.end() - static_cast<std::ptrdiff_t>(first.input_ids.size()),
                                       again.input_ids.end());
  EXPECT_EQ(first.input_ids, tail);
  rules_.seed = 1;
  ExampleRows other;
  make_examples({one, two}, 1, rules_, masker, other);
  EXPECT_NE(first.input_ids, other.input_ids);
}

TEST_F(ExamplesTest, TheShortestSequencesHaveATokenInEachSegment) {
  rules_.sequence_length = kMinSequenceLength;
  rules_.masking.max_predictions = 1;
  for (const Row& row : make({numbered_document(0, 3, 4, 5), numbered_document(1, 3, 4, 500)})) {
    EXPECT_EQ(row.one.size(), 1u);
    EXPECT_EQ(row.two.size(), 1u);
  }
}

}  // namespace
}  // namespace tempo::data
