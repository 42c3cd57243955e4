// From text to the ids of a vocabulary: one interface, an implementation per kind of tokenizer.
//
// Not for: sentences and documents (corpus.h), special tokens around a sequence (examples.h).
// Thread rule: a Tokenizer keeps a cache and belongs to one thread; clone() gives another thread its own. All clones share
// the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/vocabulary.h"

namespace tempo::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text` to `ids`; no special tokens. `text` is UTF-8; bytes that are not are read as U+FFFD.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids) = 0;

  virtual std::unique_ptr<Tokenizer> clone() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;

  /// "wordpiece uncased", "wordpiece cased": what is stored with the shards beside the vocabulary's hash.
  virtual std::string name() const = 0;

  /// Whether the piece continues the word of the piece before it ("##ing"): what whole-word masking keeps together.
  virtual bool continues_word(std::int32_t id) const = 0;
};

/// BERT's WordPiece (Devlin et al. 2019, 3; Wu et al. 2016), equal id by id to Hugging Face `tokenizers` with
/// BertNormalizer(clean_text, handle_chinese_chars, lowercase, strip_accents = lowercase), BertPreTokenizer and
/// WordPiece(max_input_chars_per_word 100). A word that cannot be built from pieces, or has more than 100 characters after
/// normalisation, is one [UNK].
std::unique_ptr<Tokenizer> make_wordpiece(std::shared_ptr<const Vocabulary> vocabulary, bool lowercase);

}  // namespace tempo::data
