#include "data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <map>
#include <set>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::value_error_of;

class CorpusTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    options_.inputs.push_back(folder_ / name);
    return folder_ / name;
  }

  std::filesystem::path write_packed(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    const gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    ::gzclose(file);
    options_.inputs.push_back(path);
    return path;
  }

  std::vector<TextChunk> read() {
    CorpusReader reader(options_);
    std::vector<TextChunk> chunks;
    for (TextChunk chunk; reader.next(chunk);) chunks.push_back(std::move(chunk));
    counts_ = reader.counts();
    EXPECT_EQ(reader.bytes_read(), reader.bytes_in_all());
    return chunks;
  }

  /// Number -> text, put together from its pieces; what chunks repeat is left out.
  std::map<std::int64_t, std::string> documents() {
    std::map<std::int64_t, std::string> texts;
    for (const TextChunk& chunk : read()) {
      for (std::size_t index = chunk.num_repeated; index < chunk.pieces.size(); ++index) {
        texts[chunk.pieces[index].document] += chunk.pieces[index].text;
      }
    }
    return texts;
  }

  testing::TemporaryDirectory folder_;
  CorpusOptions options_;
  CorpusCounts counts_;
};

TEST_F(CorpusTest, AFileIsADocumentWithItsBlankLines) {
  write("a.txt", "one\n\ntwo\n");
  write("b.txt", "\n \nthree");
  const auto texts = documents();
  EXPECT_EQ(texts.at(0), "one\n\ntwo\n");
  EXPECT_EQ(texts.at(1), "three\n");
  EXPECT_EQ(counts_.documents, 2);
}

TEST_F(CorpusTest, BlankLinesAndTheEndOfAFileEndDocuments) {
  options_.documents = DocumentRule::kBlankLine;
  write("a.txt", "one\ntwo\n\n\n \t \nthree\n");
  write("b.txt", "four\n");
  const auto texts = documents();
  EXPECT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts.at(0), "one\ntwo\n");
  EXPECT_EQ(texts.at(1), "three\n");
  EXPECT_EQ(texts.at(2), "four\n");
}

TEST_F(CorpusTest, LineEndsOfWindowsAndAByteOrderMarkAreNotText) {
  options_.documents = DocumentRule::kBlankLine;
  write("a.txt", "\xEF\xBB\xBFone\r\ntwo\r\n\r\nthree\r\n");
  const auto texts = documents();
  EXPECT_EQ(texts.at(0), "one\ntwo\n");
  EXPECT_EQ(texts.at(1), "three\n");
}

TEST_F(CorpusTest, PackedFilesReadAsPlainOnes) {
  std::string text;
  for (int line = 0; line < 50'000; ++line) text += "line " + std::to_string(line) + "\n";
  write_packed("a.txt.gz", text);
  write("b.txt", text);
  const auto texts = documents();
  EXPECT_EQ(texts.at(0), text);
  EXPECT_EQ(texts.at(1), text);
}

TEST_F(CorpusTest, APackedFileThatIsCutOffIsRefused) {
  const auto path = write_packed("a.txt.gz", std::string(100'000, 'x') + "\n");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(value_error_of([&] { read(); }), path.string() + ": cannot be read: the gzip file is cut off");
}

TEST_F(CorpusTest, WhatCannotBeReadIsNamed) {
  options_.inputs = {folder_ / "missing.txt"};
  EXPECT_THAT(value_error_of([&] { read(); }), HasSubstr("missing.txt: No such file or directory"));
  options_.inputs = {folder_.path()};
  EXPECT_THAT(value_error_of([&] { read(); }), HasSubstr("is a folder"));
}

TEST_F(CorpusTest, FilesWithoutTextAreCountedAndMakeNoDocument) {
  write("a.txt", "");
  write("b.txt", "\n \r\n\t\n");
  write("c.txt", "text\n");
  EXPECT_EQ(documents().size(), 1u);
  EXPECT_EQ(counts_.empty_files, 2);
  EXPECT_EQ(counts_.documents, 1);
}

TEST_F(CorpusTest, ALongDocumentComesInPiecesThatLoseNothing) {
  std::string text;
  while (text.size() < 7 * kMaxPieceBytes / 2) text += "a line of the long document\n";
  write("a.txt", text);
  write("b.txt", "short\n");
  std::set<std::uint64_t> pieces;
  for (const TextChunk& chunk : read()) {
    for (const TextPiece& piece : chunk.pieces) {
      EXPECT_LE(piece.text.size(), kMaxPieceBytes + 100);
      pieces.insert(piece.piece);
    }
  }
  EXPECT_EQ(pieces.size(), 5u);
  EXPECT_EQ(counts_.cut_documents, 1);
  EXPECT_EQ(documents().at(0), text);
}

TEST_F(CorpusTest, ALineWithoutEndIsCutBetweenWordsOrElseCharacters) {
  std::string words;
  while (words.size() < (3u << 20)) words += "word ";
  std::string letters;
  while (letters.size() < (3u << 20)) letters += "\u00E9";
  write("a.txt", words);
  write("b.txt", letters);
  for (const auto& [number, text] : documents()) {
    const std::string& part = number == 0 ? "word " : "\u00E9";
    std::string joined;
    std::size_t start = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', start)) {
      EXPECT_EQ((end - start) % part.size(), 0u);
      joined += text.substr(start, end - start);
      start = end + 1;
    }
    EXPECT_TRUE(joined == (number == 0 ? words : letters));
  }
}

TEST_F(CorpusTest, ChunksHoldSeveralDocumentsAndNumberThemselves) {
  options_.chunk_bytes = 100;
  for (int file = 0; file < 30; ++file) write("f" + std::to_string(100 + file), std::string(39, 'x') + "\n");
  std::uint64_t number = 0;
  for (const TextChunk& chunk : read()) {
    EXPECT_EQ(chunk.number, number++);
    EXPECT_EQ(chunk.pieces.size(), 3u);
    EXPECT_EQ(chunk.num_repeated, 0u);
  }
  EXPECT_EQ(number, 10u);
}

TEST_F(CorpusTest, AChunkOfOneDocumentRepeatsAnotherOne) {
  options_.chunk_bytes = 100;
  write("a.txt", std::string(80, 'a') + "\n");
  write("b.txt", std::string(80, 'b') + "\n");
  write("c.txt", std::string(80, 'c') + "\n");
  const std::vector<TextChunk> chunks = read();
  ASSERT_EQ(chunks.size(), 2u);
  ASSERT_EQ(chunks[1].pieces.size(), 2u);
  EXPECT_EQ(chunks[1].num_repeated, 1u);
  EXPECT_EQ(chunks[1].pieces[0].document, 1);
  EXPECT_EQ(chunks[1].pieces[1].document, 2);
}

TEST_F(CorpusTest, ThePiecesOfALongDocumentRepeatTheOneBefore) {
  options_.chunk_bytes = 100;
  write("a.txt", std::string(80, 'a') + "\n");
  std::string text;
  while (text.size() < 4 * kMaxPieceBytes) text += std::string(99, 'b') + "\n";
  write("b.txt", text);
  std::size_t repeated = 0;
  for (const TextChunk& chunk : read()) {
    std::set<std::int64_t> documents;
    for (const TextPiece& piece : chunk.pieces) documents.insert(piece.document);
    EXPECT_EQ(documents, (std::set<std::int64_t>{0, 1}));
    repeated += chunk.num_repeated;
  }
  EXPECT_GE(repeated, 1u);
}

TEST_F(CorpusTest, HoldsOutTheShareThatIsAskedForInChunksOfItsOwn) {
  options_.documents = DocumentRule::kBlankLine;
  options_.held_out_share = 0.07;
  std::string text;
  for (int document = 0; document < 1000; ++document) text += "document " + std::to_string(document) + "\n\n";
  write("a.txt", text);
  std::set<std::int64_t> held_out;
  for (const TextChunk& chunk : read()) {
    for (const TextPiece& piece : chunk.pieces) {
      if (chunk.held_out) held_out.insert(piece.document);
    }
  }
  EXPECT_EQ(held_out.size(), 70u);
  EXPECT_EQ(counts_.held_out_documents, 70);
  options_.seed = 1;
  std::set<std::int64_t> other;
  for (const TextChunk& chunk : read()) {
    for (const TextPiece& piece : chunk.pieces) {
      if (chunk.held_out) other.insert(piece.document);
    }
  }
  EXPECT_EQ(other.size(), 70u);
  EXPECT_NE(other, held_out);
}

}  // namespace
}  // namespace tempo::data
