#include "data/masking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/value_error.h"
#include "tests/support/written_vocabulary.h"

namespace tempo::data {
namespace {

constexpr std::int32_t kCls = 2;
constexpr std::int32_t kSep = 3;
constexpr std::int32_t kMask = 4;
constexpr std::int64_t kPredictions = 20;

struct Masked {
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> labels;
};

Masked mask(Masker& masker, std::vector<std::int32_t> ids, std::uint64_t item) {
  Masked result{ids, ids, std::vector<std::int32_t>(kPredictions), std::vector<std::int32_t>(kPredictions)};
  Random random(1, Random::Purpose::kExamples, item);
  const std::int64_t count = masker.mask(result.after.data(), static_cast<std::int64_t>(ids.size()), random,
                                         result.positions.data(), result.labels.data());
  result.positions.resize(static_cast<std::size_t>(count));
  result.labels.resize(static_cast<std::size_t>(count));
  return result;
}

/// [CLS] ids [SEP] ids [SEP], `length` in all, of ids first ... last.
std::vector<std::int32_t> sequence(std::size_t length, std::int32_t first, std::int32_t last) {
  std::vector<std::int32_t> ids(length);
  for (std::size_t slot = 0; slot < length; ++slot) {
    ids[slot] = first + static_cast<std::int32_t>(slot * 7 % static_cast<std::size_t>(last - first + 1));
  }
  ids.front() = kCls;
  ids[length / 2] = ids.back() = kSep;
  return ids;
}

class MaskingTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = testing::tokenizer_of(testing::numbered_words(100));
  MaskingRules rules_{0.15, kPredictions, false, RandomWords::kWords};
};

TEST_F(MaskingTest, TargetsAreChosenAndReplacedInBertsShares) {
  Masker masker(*tokenizer_, rules_);
  std::map<std::string, double> counts;
  double targets = 0;
  for (std::uint64_t item = 0; item < 3000; ++item) {
    const Masked row = mask(masker, sequence(100, 5, 104), item);
    EXPECT_EQ(row.positions.size(), 15u);
    for (std::size_t target = 0; target < row.positions.size(); ++target) {
      const std::int32_t position = row.positions[target];
      const std::int32_t now = row.after[position];
      EXPECT_EQ(row.labels[target], row.before[position]);
      EXPECT_GE(row.labels[target], 5);
      targets += 1;
      counts[now == kMask ? "masked" : now == row.labels[target] ? "kept" : "other"] += 1;
      EXPECT_GE(now, kMask);
    }
  }
  // 45,000 targets: five standard deviations are 0.0094 and 0.0071.
  EXPECT_NEAR(counts["masked"] / targets, 0.8, 0.0095);
  EXPECT_NEAR(counts["kept"] / targets, 0.1 + 0.1 / 100, 0.0075);  // a random word may be the same
  EXPECT_NEAR(counts["other"] / targets, 0.1 - 0.1 / 100, 0.0075);
}

TEST_F(MaskingTest, OnlyTargetsChangeAndPositionsRise) {
  Masker masker(*tokenizer_, rules_);
  for (std::uint64_t item = 0; item < 200; ++item) {
    const Masked row = mask(masker, sequence(64, 5, 104), item);
    EXPECT_TRUE(std::is_sorted(row.positions.begin(), row.positions.end(), std::less_equal<>()) ||
                row.positions.size() < 2);
    for (std::int32_t position = 0; position < 64; ++position) {
      const bool is_target = std::count(row.positions.begin(), row.positions.end(), position) > 0;
      if (is_target) {
        EXPECT_GE(row.before[position], 5) << "a special token is a target";
      } else {
        EXPECT_EQ(row.after[position], row.before[position]);
      }
    }
  }
}

TEST_F(MaskingTest, EveryWordMayBeDrawnAndNothingElse) {
  rules_.masked_share = 0.9;
  const auto with_unused = testing::tokenizer_of({"[unused0]", "[unused12]", "a", "b", "c", "[unusedx]"});
  std::map<std::int32_t, int> drawn;
  Masker masker(*with_unused, rules_);
  for (std::uint64_t item = 0; item < 2000; ++item) {
    const Masked row = mask(masker, sequence(30, 7, 7), item);
    for (const std::int32_t position : row.positions) ++drawn[row.after[position]];
  }
  std::vector<std::int32_t> ids;
  for (const auto& entry : drawn) ids.push_back(entry.first);
  EXPECT_THAT(ids, ::testing::ElementsAre(kMask, 7, 8, 9, 10));
}

TEST_F(MaskingTest, AnyIdMayBeDrawnWhereThatIsAskedFor) {
  rules_.masked_share = 0.9;
  rules_.random_words = RandomWords::kAny;
  Masker masker(*tokenizer_, rules_);
  bool has_special = false;
  for (std::uint64_t item = 0; item < 2000; ++item) {
    const Masked row = mask(masker, sequence(30, 7, 7), item);
    for (const std::int32_t position : row.positions) has_special = has_special || row.after[position] < kCls;
  }
  EXPECT_TRUE(has_special);
}

TEST_F(MaskingTest, CountsRoundHalfToEvenWithinOneAndTheMost) {
  Masker masker(*tokenizer_, rules_);
  const std::map<std::size_t, std::size_t> counts = {{5, 1}, {10, 2}, {11, 2}, {30, 4}, {50, 8}, {128, 19}, {200, 20}};
  for (const auto& [length, count] : counts) {
    EXPECT_EQ(mask(masker, sequence(length, 5, 104), length).positions.size(), count) << length;
  }
}

class WholeWordTest : public MaskingTest {
 protected:
  WholeWordTest() { rules_.whole_word = true; }
  std::unique_ptr<Tokenizer> pieces_ = testing::tokenizer_of({"h", "x", "##m", "##t"});
  static constexpr std::int32_t kHead = 5, kWhole = 6, kM = 7, kT = 8;
};

TEST_F(WholeWordTest, AllPiecesOfAWordOrNone) {
  Masker masker(*pieces_, rules_);
  for (std::uint64_t item = 0; item < 500; ++item) {
    std::vector<std::int32_t> ids = {kCls};
    for (int word = 0; word < 20; ++word) {
      for (const std::int32_t id : {kHead, kM, kT}) ids.push_back(id);
      ids.push_back(kWhole);
    }
    ids.push_back(kSep);
    const Masked row = mask(masker, ids, item);
    EXPECT_LE(row.positions.size(), 12u);
    EXPECT_GE(row.positions.size(), 10u);
    for (const std::int32_t position : row.positions) {
      if (row.before[position] == kWhole) continue;
      const std::map<std::int32_t, std::int32_t> offsets = {{kHead, 0}, {kM, 1}, {kT, 2}};
      const std::int32_t first = position - offsets.at(row.before[position]);
      for (std::int32_t piece = first; piece < first + 3; ++piece) {
        EXPECT_EQ(std::count(row.positions.begin(), row.positions.end(), piece), 1);
      }
    }
  }
}

TEST_F(WholeWordTest, AShortSequenceStillGetsAWord) {
  Masker masker(*pieces_, rules_);
  // n is 1, every word has three pieces, and P leaves room.
  const Masked row = mask(masker, {kCls, kHead, kM, kT, kSep, kHead, kM, kT, kSep}, 1);
  EXPECT_EQ(row.positions.size(), 3u);
}

TEST_F(WholeWordTest, APieceAtTheStartOfASegmentIsAWordOfItsOwn) {
  rules_.masked_share = 0.4;
  Masker masker(*pieces_, rules_);
  // Truncation cut the second segment's first word: its pieces do not belong to the segment before.
  for (std::uint64_t item = 0; item < 50; ++item) {
    const Masked row = mask(masker, {kCls, kWhole, kSep, kM, kT, kSep}, item);
    EXPECT_THAT(row.positions, ::testing::AnyOf(::testing::ElementsAre(1), ::testing::ElementsAre(3, 4)));
  }
}

TEST_F(MaskingTest, AVocabularyWithoutWordsIsRefused) {
  const auto empty = testing::tokenizer_of({"[unused0]"});
  EXPECT_EQ(testing::value_error_of([&] { Masker(*empty, rules_); }),
            "the vocabulary has no words besides its special tokens");
}

}  // namespace
}  // namespace tempo::data
