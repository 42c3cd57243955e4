#include "data/masking.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tempo::data {
namespace {

constexpr double kMaskShare = 0.8;  // of the targets; half of the rest stays, half becomes a random word

bool is_unused(const std::string& token) {
  return token.size() > 8 && token.compare(0, 7, "[unused") == 0 && token.back() == ']' &&
         std::all_of(token.begin() + 7, token.end() - 1, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Masker::Masker(const Tokenizer& tokenizer, const MaskingRules& rules)
    : tokenizer_(&tokenizer), rules_(rules), specials_(tokenizer.vocabulary().specials()) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const std::int32_t specials[] = {specials_.pad, specials_.unknown, specials_.cls, specials_.sep, specials_.mask};
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    const bool is_word = std::find(std::begin(specials), std::end(specials), id) == std::end(specials) &&
                         !is_unused(vocabulary.token(id));
    if (is_word || rules.random_words == RandomWords::kAny) drawable_.push_back(id);
  }
  TORCH_CHECK_VALUE(!drawable_.empty(), "the vocabulary has no words besides its special tokens");
}

void Masker::collect_words(const std::int32_t* ids, std::int64_t length) {
  words_.resize(static_cast<std::size_t>(length));
  std::size_t count = 0;
  bool can_continue = false;
  for (std::int32_t position = 0; position < length; ++position) {
    const std::int32_t id = ids[position];
    const bool is_special = id == specials_.cls || id == specials_.sep;
    if (rules_.whole_word && !is_special && can_continue && tokenizer_->continues_word(id)) {
      ++words_[count - 1].num_pieces;
      continue;
    }
    // Without branches, as most sequences take this way: a special token's place is written over by the next word.
    words_[count] = {position, 1};
    count += is_special ? 0 : 1;
    can_continue = !is_special;  // a word cut at the front does not belong to the segment before it
  }
  words_.resize(count);
}

std::int32_t Masker::replacement(std::int32_t id, Random& random) const {
  if (random.chance(kMaskShare)) return specials_.mask;
  if (random.chance(0.5)) return id;
  return drawable_[random.below(static_cast<std::uint32_t>(drawable_.size()))];
}

std::int64_t Masker::mask(std::int32_t* ids, std::int64_t length, Random& random, std::int32_t* positions,
                          std::int32_t* labels) {
  collect_words(ids, length);
  const auto wanted = std::llrint(static_cast<double>(length) * rules_.masked_share);  // half to even
  const std::int64_t limit = std::min<std::int64_t>(rules_.max_predictions, std::max<long long>(1, wanted));
  std::int64_t count = 0;
  const auto take = [&](const Word& word) {
    for (std::int32_t piece = 0; piece < word.num_pieces; ++piece) positions[count++] = word.first_position + piece;
  };
  const Word* first_that_fits = nullptr;  // P, but not n
  const auto num_words = static_cast<std::uint32_t>(words_.size());
  for (std::uint32_t drawn = 0; drawn < num_words && count < limit; ++drawn) {
    std::swap(words_[drawn], words_[drawn + random.below(num_words - drawn)]);
    const Word& word = words_[drawn];
    if (count + word.num_pieces <= limit) {
      take(word);
    } else if (first_that_fits == nullptr && word.num_pieces <= rules_.max_predictions) {
      first_that_fits = &word;
    }
  }
  if (count == 0 && first_that_fits != nullptr) take(*first_that_fits);

  std::sort(positions, positions + count);
  for (std::int64_t target = 0; target < count; ++target) {
    std::int32_t& id = ids[positions[target]];
    labels[target] = id;
    id = replacement(id, random);
  }
  return count;
}

}  // namespace tempo::data
