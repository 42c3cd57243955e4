// Reads text files as a stream of documents, in pieces and chunks of bounded size.
//
// A document is a file, or what stands between blank lines. A chunk holds whole documents, some 512 KiB of them, and is what
// one thread works on at a time; how the corpus is cut into chunks depends on the corpus and the options only. A document
// longer than kMaxPieceBytes comes in pieces. Whole documents are held out for validation, into chunks of their own.
// Not for: sentences (sentences.h), ids (tokenizer.h). Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tempo::data {

enum class DocumentRule {
  kFile,       ///< a file is a document
  kBlankLine,  ///< blank lines stand between documents; the end of a file ends one too
};

struct CorpusOptions {
  std::vector<std::filesystem::path> inputs;  ///< plain text or gzip (told by its content), read in this order
  DocumentRule documents = DocumentRule::kFile;
  double held_out_share = 0;  ///< of the documents
  std::size_t chunk_bytes = std::size_t{1} << 19;
  std::uint64_t seed = 0;  ///< decides which documents are held out
};

inline constexpr double kMinHeldOutShare = 1e-6;  ///< unless it is 0
inline constexpr std::size_t kMaxPieceBytes = std::size_t{2} << 20;

/// A document, or a part of one that is too long. Lines end with LF; text may not be UTF-8.
struct TextPiece {
  std::int64_t document = 0;  ///< number over all documents with text, from 0
  std::uint64_t piece = 0;    ///< number over all pieces
  std::string text;
};

struct TextChunk {
  std::uint64_t number = 0;  ///< from 0, over all chunks
  bool held_out = false;
  /// Pieces at the front that were in an earlier chunk already: another document, where the chunk has only one of its own.
  std::size_t num_repeated = 0;
  std::vector<TextPiece> pieces;
};

struct CorpusCounts {
  std::int64_t documents = 0;
  std::int64_t held_out_documents = 0;
  std::int64_t cut_documents = 0;  ///< longer than kMaxPieceBytes
  std::int64_t empty_files = 0;    ///< without any text
  std::int64_t text_bytes = 0;     ///< unpacked
};

class CorpusReader {
 public:
  explicit CorpusReader(CorpusOptions options);
  ~CorpusReader();

  /// The next chunk; false at the end. Throws c10::ValueError naming the file when one cannot be read, is a folder or is a
  /// gzip file that is cut off.
  bool next(TextChunk& chunk);

  const CorpusCounts& counts() const;

  /// Bytes of the files, packed as they are, that have been read.
  std::int64_t bytes_read() const;
  std::int64_t bytes_in_all() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tempo::data
