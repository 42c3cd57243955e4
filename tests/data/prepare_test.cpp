#include "data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "data/shard.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"
#include "tests/support/written_vocabulary.h"

namespace tempo::data {
namespace {

using ::testing::HasSubstr;
using testing::value_error_of;

constexpr int kWordsPerDocument = 120;

/// Bytes of every file below a folder, by relative path.
std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    files[entry.path().lexically_relative(folder).string()] = bytes.str();
  }
  return files;
}

class PrepareTest : public ::testing::Test {
 protected:
  PrepareTest() {
    options_.corpus.documents = DocumentRule::kBlankLine;
    options_.sentences = SentenceRule::kLines;
    options_.examples.sequence_length = 32;
    options_.examples.masking.max_predictions = 5;
    options_.name = "set";
  }

  /// Documents of 12 lines of 10 words; document d is made of the words w(100 d) ... w(100 d + 99) only.
  void write_corpus(int num_documents) {
    std::ofstream file(folder_ / "corpus.txt");
    for (int document = 0; document < num_documents; ++document) {
      for (int word = 0; word < kWordsPerDocument; ++word) {
        file << "w" << document * 100 + word * 37 % 100 << (word % 10 == 9 ? "\n" : " ");
      }
      file << "\n";
    }
    options_.corpus.inputs = {folder_ / "corpus.txt"};
  }

  PrepareSummary run(const std::string& name) {
    options_.folder = folder_ / name;
    std::filesystem::create_directories(options_.folder / "validation");
    return prepare(options_, *tokenizer_);
  }

  std::string error() {
    return value_error_of([&] { run("failed"); });
  }

  testing::TemporaryDirectory folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = testing::tokenizer_of(testing::numbered_words(20'000));
  PrepareOptions options_;
};

TEST_F(PrepareTest, BytesDependOnTheSeedAndNotOnThreads) {
  write_corpus(150);
  options_.examples.duplicates = 400;  // small chunks, and so many of them
  options_.num_shards = 3;
  options_.corpus.held_out_share = 0.1;
  options_.threads = 1;
  run("one");
  options_.threads = 4;
  run("four");
  options_.examples.seed = 7;
  run("other");
  const auto one = contents(folder_ / "one");
  EXPECT_EQ(one.size(), 4u);
  EXPECT_TRUE(one == contents(folder_ / "four"));
  EXPECT_FALSE(one == contents(folder_ / "other"));
}

TEST_F(PrepareTest, ShardsAreBalancedAndHoldWhatTheSummarySays) {
  write_corpus(60);
  options_.num_shards = 4;
  const PrepareSummary summary = run("out");
  std::int64_t rows = 0;
  std::int64_t real_tokens = 0;
  std::int64_t labels = 0;
  std::int64_t random_next = 0;
  std::set<std::int64_t> sizes;
  for (const PreparedShard& file : summary.shards) {
    const Shard shard = read_shard(options_.folder / file.path, {tokenizer_->vocabulary().size(), 2});
    EXPECT_EQ(shard.shape.num_rows, file.rows);
    sizes.insert(file.rows);
    rows += file.rows;
    for (std::int64_t row = 0; row < file.rows; ++row) {
      real_tokens += shard.lengths[row];
      labels += shard.num_labels[row];
      random_next += shard.next_sentence_labels[row];
    }
  }
  EXPECT_EQ(summary.shards.size(), 4u);
  EXPECT_LE(*sizes.rbegin() - *sizes.begin(), 1);
  EXPECT_EQ(summary.rows, rows);
  EXPECT_EQ(summary.real_tokens, real_tokens);
  EXPECT_EQ(summary.labels, labels);
  EXPECT_EQ(summary.random_next, random_next);
  EXPECT_EQ(summary.corpus.documents, 60);
  EXPECT_EQ(summary.sentences, 60 * 12);
  EXPECT_EQ(summary.tokens, 60 * kWordsPerDocument);
  EXPECT_EQ(summary.unknown_tokens, 0);
}

TEST_F(PrepareTest, TheUnigramEntropyIsThatOfTheTokens) {
  // 120 words a document, of which 20 come twice: 80 words of share 1/120, 20 of share 2/120 in each of 10 documents.
  write_corpus(10);
  const double expected =
      -(10 * 80 * (1 / 1200.0) * std::log(1 / 1200.0) + 10 * 20 * (2 / 1200.0) * std::log(2 / 1200.0));
  EXPECT_NEAR(run("out").unigram_entropy, expected, 1e-12);
}

TEST_F(PrepareTest, HeldOutDocumentsAreInNoTrainingRow) {
  write_corpus(100);
  options_.corpus.held_out_share = 0.1;
  options_.examples.masking.random_words = RandomWords::kWords;
  const PrepareSummary summary = run("out");
  EXPECT_EQ(summary.corpus.held_out_documents, 10);
  // By labels, which are original ids: random words could come from anywhere.
  std::map<bool, std::set<std::int32_t>> documents;
  for (const PreparedShard& file : summary.shards) {
    const Shard shard = read_shard(options_.folder / file.path, {});
    for (std::size_t slot = 0; slot < shard.masked_lm_ids.size(); ++slot) {
      if (shard.masked_lm_ids[slot] > 0)
        documents[file.path.has_parent_path()].insert((shard.masked_lm_ids[slot] - 5) / 100);
    }
  }
  EXPECT_EQ(documents[true].size(), 10u);
  EXPECT_EQ(documents[false].size(), 90u);
  for (const std::int32_t document : documents[true]) EXPECT_EQ(documents[false].count(document), 0u);
}

TEST_F(PrepareTest, FewRowsMakeFewShards) {
  write_corpus(2);
  options_.examples.duplicates = 1;
  options_.examples.sequence_length = 512;
  options_.num_shards = 50;
  const PrepareSummary summary = run("out");
  EXPECT_EQ(summary.shards.size(), static_cast<std::size_t>(summary.rows));
}

TEST_F(PrepareTest, ProgressEndsWithTheWholeInput) {
  write_corpus(200);
  PrepareProgress last;
  options_.on_progress = [&](const PrepareProgress& progress) {
    EXPECT_GE(progress.bytes_read, last.bytes_read);
    EXPECT_GE(progress.rows, last.rows);
    last = progress;
  };
  const PrepareSummary summary = run("out");
  EXPECT_EQ(last.bytes_read, last.bytes_in_all);
  EXPECT_EQ(last.rows, summary.rows);
}

TEST_F(PrepareTest, OneDocumentIsRefused) {
  write_corpus(1);
  EXPECT_EQ(error(), "prepare.input: 1 document, but next-sentence pairs need two");
  options_.corpus.documents = DocumentRule::kFile;
  EXPECT_THAT(error(), HasSubstr("one file is one document, but next-sentence pairs need two; where blank lines stand "
                                 "between documents, set prepare.documents: blank_line"));
}

TEST_F(PrepareTest, NoTextIsRefused) {
  write_corpus(0);
  EXPECT_EQ(error(), "prepare.input: no text in 1 file");
}

TEST_F(PrepareTest, TooFewHeldOutDocumentsAreRefused) {
  write_corpus(20);
  options_.corpus.held_out_share = 0.05;
  EXPECT_EQ(error(),
            "prepare.validation: 0.05 of 20 documents holds out 1, but next-sentence pairs need two; hold out more");
}

TEST_F(PrepareTest, TextThatIsNotUtf8IsCounted) {
  std::ofstream(folder_ / "corpus.txt") << "w1 w2\nw3 \xFFw4\n\nw5 w6\nw7\xE9 w8\n";
  options_.corpus.inputs = {folder_ / "corpus.txt"};
  const PrepareSummary summary = run("out");
  EXPECT_EQ(summary.bad_utf8, 2);
  EXPECT_EQ(summary.tokens, 8);
  EXPECT_EQ(summary.unknown_tokens, 0);
}

}  // namespace
}  // namespace tempo::data
