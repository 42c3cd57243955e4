#include "data/examples.h"

#include <algorithm>

namespace tempo::data {
namespace {

constexpr std::int64_t kNumSpecials = 3;  // [CLS] A [SEP] B [SEP]
constexpr std::int64_t kMinTarget = 2;    // a token in each segment
constexpr int kRandomDocumentTries = 10;  // draws before the documents are gone through in order
constexpr double kRandomNextShare = 0.5;

/// Tokens [begin, end) of a document.
struct Segment {
  const TokenDocument* document = nullptr;
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Sentences [first, last) of a document.
Segment sentences(const TokenDocument& document, std::int64_t first, std::int64_t last) {
  return {&document, document.sentence_starts[first], document.sentence_starts[last]};
}

/// The pairs of one pass over one document.
class PairMaker {
 public:
  PairMaker(const std::vector<TokenDocument>& pool, const TokenDocument& document, const ExampleRules& rules,
            Masker& masker, Random& random, ExampleRows& rows, ExampleCounts& counts)
      : pool_(pool),
        document_(document),
        masker_(masker),
        random_(random),
        rows_(rows),
        counts_(counts),
        max_tokens_(rules.sequence_length - kNumSpecials),
        specials_(masker.specials()),
        target_(random.chance(rules.short_share) ? random.between(std::min(kMinTarget, max_tokens_), max_tokens_)
                                                 : max_tokens_) {}

  void run() {
    std::int64_t first = 0;
    for (std::int64_t last = 1; last <= document_.num_sentences(); ++last) {
      const bool is_end = last == document_.num_sentences();
      if (!is_end && sentences(document_, first, last).size() < target_) continue;
      // Sentences of a random pair that were not used are put back.
      last = make_pair(first, last);
      first = last;
    }
  }

 private:
  /// A row from sentences [first, last). Returns the sentence after the last one that is used up.
  std::int64_t make_pair(std::int64_t first, std::int64_t last) {
    const std::int64_t num_sentences = last - first;
    const std::int64_t middle = first + (num_sentences >= 2 ? random_.between(1, num_sentences - 1) : 1);
    const Segment one = sentences(document_, first, middle);
    if (num_sentences == 1 || random_.chance(kRandomNextShare)) {
      const TokenDocument* other = other_document();
      if (other != nullptr) {
        add_row(one, random_segment(*other, target_ - one.size()), true);
        return middle;
      }
      if (num_sentences == 1) {
        ++counts_.lone_sentences;
        return last;
      }
      ++counts_.pairs_without_other_document;
    }
    add_row(one, sentences(document_, middle, last), false);
    return last;
  }

  /// A document of another number, each equally likely; null if there is none.
  const TokenDocument* other_document() {
    const auto size = static_cast<std::uint32_t>(pool_.size());
    std::uint32_t index = 0;
    for (int attempt = 0; attempt < kRandomDocumentTries; ++attempt) {
      index = random_.below(size);
      if (pool_[index].document != document_.document) return &pool_[index];
    }
    for (std::uint32_t step = 1; step < size; ++step) {
      const TokenDocument& candidate = pool_[(index + step) % size];
      if (candidate.document != document_.document) return &candidate;
    }
    return nullptr;
  }

  /// Sentences from a random one on until `wanted` tokens are there or the document ends.
  Segment random_segment(const TokenDocument& other, std::int64_t wanted) {
    const std::int64_t start = random_.between(0, other.num_sentences() - 1);
    std::int64_t last = start + 1;
    while (last < other.num_sentences() && sentences(other, start, last).size() < wanted) ++last;
    return sentences(other, start, last);
  }

  /// While both are too long for a row, the longer one loses a token, at its front or its back.
  void truncate(Segment& one, Segment& two) {
    while (one.size() + two.size() > max_tokens_) {
      Segment& longer = one.size() > two.size() ? one : two;
      if (random_.chance(0.5)) {
        ++longer.begin;
      } else {
        --longer.end;
      }
    }
  }

  void add_row(Segment one, Segment two, bool is_random) {
    truncate(one, two);
    const std::size_t start = rows_.input_ids.size();
    rows_.input_ids.resize(start + static_cast<std::size_t>(rows_.sequence_length), specials_.pad);
    std::int32_t* const ids = rows_.input_ids.data() + start;
    std::int32_t* end = ids;
    *end++ = specials_.cls;
    end = std::copy(one.document->ids.begin() + one.begin, one.document->ids.begin() + one.end, end);
    *end++ = specials_.sep;
    rows_.second_starts.push_back(static_cast<std::int32_t>(end - ids));
    end = std::copy(two.document->ids.begin() + two.begin, two.document->ids.begin() + two.end, end);
    *end++ = specials_.sep;
    const auto length = static_cast<std::int32_t>(end - ids);
    rows_.lengths.push_back(length);

    const std::size_t label = rows_.masked_lm_positions.size();
    rows_.masked_lm_positions.resize(label + rows_.max_predictions);
    rows_.masked_lm_ids.resize(label + rows_.max_predictions);
    const std::int64_t num_labels = masker_.mask(ids, length, random_, rows_.masked_lm_positions.data() + label,
                                                 rows_.masked_lm_ids.data() + label);
    rows_.num_labels.push_back(static_cast<std::int32_t>(num_labels));
    rows_.next_sentence_labels.push_back(is_random ? 1 : 0);
  }

  const std::vector<TokenDocument>& pool_;
  const TokenDocument& document_;
  Masker& masker_;
  Random& random_;
  ExampleRows& rows_;
  ExampleCounts& counts_;
  std::int64_t max_tokens_;
  SpecialIds specials_;
  std::int64_t target_;  ///< tokens to gather before a pair is made
};

/// Room for about as many rows as there will be, so that growing copies little.
void reserve(const std::vector<TokenDocument>& documents, std::size_t first, const ExampleRules& rules,
             ExampleRows& rows) {
  std::size_t tokens = 0;
  for (std::size_t index = first; index < documents.size(); ++index) tokens += documents[index].ids.size();
  const auto length = static_cast<std::size_t>(rules.sequence_length);
  const std::size_t num_rows = tokens * static_cast<std::size_t>(rules.duplicates) * 3 / 2 / length + documents.size();
  rows.input_ids.reserve(num_rows * length);
  rows.masked_lm_positions.reserve(num_rows * static_cast<std::size_t>(rules.masking.max_predictions));
  rows.masked_lm_ids.reserve(num_rows * static_cast<std::size_t>(rules.masking.max_predictions));
}

}  // namespace

ExampleCounts make_examples(const std::vector<TokenDocument>& documents, std::size_t first, const ExampleRules& rules,
                            Masker& masker, ExampleRows& rows) {
  rows.sequence_length = rules.sequence_length;
  rows.max_predictions = rules.masking.max_predictions;
  reserve(documents, first, rules, rows);
  ExampleCounts counts;
  for (std::int64_t pass = 0; pass < rules.duplicates; ++pass) {
    for (std::size_t index = first; index < documents.size(); ++index) {
      Random random(rules.seed, Random::Purpose::kExamples, documents[index].piece, static_cast<std::uint64_t>(pass));
      PairMaker(documents, documents[index], rules, masker, random, rows, counts).run();
    }
  }
  return counts;
}

}  // namespace tempo::data
