// BERT's masked tokens (Devlin et al. 2019, 3.1): which tokens of a sequence become targets, and what stands in their place.
//
// Differs from Google's create_pretraining_data.py on purpose in what a random word may be: specials and [unusedN] entries
// are never drawn, unless asked for. Not for: sequences (examples.h). Thread rule: a Masker has buffers and belongs to one thread; copies are independent.
#pragma once

#include <cstdint>
#include <vector>

#include "data/random.h"
#include "data/tokenizer.h"

namespace tempo::data {

/// What may replace a target that is neither masked nor kept.
enum class RandomWords {
  kWords,  ///< any token but specials and [unusedN]
  kAny,    ///< any id of the vocabulary (Google's rule)
};

struct MaskingRules {
  double masked_share = 0.15;        ///< targets per token, specials counted
  std::int64_t max_predictions = 0;  ///< P: at most this many targets
  bool whole_word = false;           ///< all pieces of a word or none
  RandomWords random_words = RandomWords::kWords;
};

class Masker {
 public:
  /// `tokenizer` must outlive it. Throws c10::ValueError when the vocabulary has no word to draw.
  Masker(const Tokenizer& tokenizer, const MaskingRules& rules);

  const SpecialIds& specials() const { return specials_; }

  /// Chooses n = min(P, max(1, round-half-even(length x masked_share))) of ids[0 .. length) that are not [CLS] or [SEP];
  /// of each, 80 % become [MASK], 10 % stay, 10 % become a random word. With whole words a word that would pass n is left
  /// out; if none fits, the first that fits P is taken.
  /// Changes ids; writes rising positions and the original ids to `positions` and `labels`, room for P each.
  /// Returns how many there are.
  std::int64_t mask(std::int32_t* ids, std::int64_t length, Random& random, std::int32_t* positions,
                    std::int32_t* labels);

 private:
  /// What is masked together: a word's pieces, or each piece alone.
  struct Word {
    std::int32_t first_position;
    std::int32_t num_pieces;
  };

  void collect_words(const std::int32_t* ids, std::int64_t length);
  std::int32_t replacement(std::int32_t id, Random& random) const;

  const Tokenizer* tokenizer_;
  MaskingRules rules_;
  SpecialIds specials_;
  std::vector<std::int32_t> drawable_;
  std::vector<Word> words_;  ///< of the sequence at hand
};

}  // namespace tempo::data
