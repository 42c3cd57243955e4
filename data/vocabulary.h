// The tokens of a vocabulary file and their ids.
//
// A vocab.txt has one token a line; the id is the line's number from 0. Line ends may be LF or CRLF.
// Not for: splitting text (tokenizer.h). Thread rule: immutable, may be read from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tempo::data {

/// Ids of BERT's special tokens.
struct SpecialIds {
  std::int32_t pad = 0;
  std::int32_t unknown = 0;
  std::int32_t cls = 0;
  std::int32_t sep = 0;
  std::int32_t mask = 0;
};

class Vocabulary {
 public:
  /// Reads vocab.txt. Throws c10::ValueError naming the file and the line: no such file, an empty one, a doubled or empty
  /// token, bad UTF-8, or one of [PAD] [UNK] [CLS] [SEP] [MASK] missing ([PAD] must be line 1: shards pad with 0).
  static Vocabulary read(const std::filesystem::path& file);

  // Moving a vector keeps its elements where they are, and so what ids_ points to; copying would not.
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  const std::string& token(std::int32_t id) const { return tokens_[id]; }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const SpecialIds& specials() const { return specials_; }

  /// The id of a token, or -1.
  std::int32_t find(std::string_view token) const;

  /// SHA-256 of the file's bytes, 64 hexadecimal digits.
  const std::string& sha256() const { return sha256_; }

 private:
  Vocabulary() = default;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  ///< views into tokens_
  SpecialIds specials_;
  std::string sha256_;
};

}  // namespace tempo::data
