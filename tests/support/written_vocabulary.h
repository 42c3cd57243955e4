// A WordPiece tokenizer over a vocabulary that a test names.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace tempo::testing {

/// The special tokens have ids 0 ... 4 ([PAD] [UNK] [CLS] [SEP] [MASK]), `tokens` those from 5 on. Uncased.
inline std::unique_ptr<data::Tokenizer> tokenizer_of(const std::vector<std::string>& tokens) {
  const TemporaryDirectory folder;
  std::ofstream file(folder / "vocab.txt");
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) file << special << "\n";
  for (const std::string& token : tokens) file << token << "\n";
  file.close();
  return data::make_wordpiece(std::make_shared<const data::Vocabulary>(data::Vocabulary::read(folder / "vocab.txt")),
                              /*lowercase=*/true);
}

/// w0, w1 ... as whole words.
inline std::vector<std::string> numbered_words(int count) {
  std::vector<std::string> words;
  for (int word = 0; word < count; ++word) words.push_back("w" + std::to_string(word));
  return words;
}

}  // namespace tempo::testing
