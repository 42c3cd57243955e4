// From documents to BERT's training sequences: pairs of segments, truncation, masking (Devlin et al. 2019; the rules of
// google-research/bert's create_pretraining_data.py, which NVIDIA's script shares; docs/formats.md, "How text becomes rows").
//
// Differs on purpose in one thing: a second segment called random never comes from its own document. Where no other document
// is at hand, the true successor is taken, or nothing.
// Not for: text (corpus.h), files (shard_writer.h). Thread rule: functions without state.
#pragma once

#include <cstdint>
#include <vector>

#include "data/masking.h"

namespace tempo::data {

/// A document as ids, cut into sentences. Sentences without a token are not among them.
struct TokenDocument {
  std::int64_t document = 0;  ///< number of the document in the corpus
  std::uint64_t piece = 0;    ///< number of this piece over all pieces of all documents; keys what is drawn
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> sentence_starts = {0};  ///< one more than there are sentences; the last is ids.size()

  std::int64_t num_sentences() const { return static_cast<std::int64_t>(sentence_starts.size()) - 1; }
};

/// Training sequences, row after row. S: sequence length, P: most predictions.
struct ExampleRows {
  std::int64_t sequence_length = 0;               ///< S
  std::int64_t max_predictions = 0;               ///< P
  std::vector<std::int32_t> input_ids;            ///< [N, S]; 0 behind the row's length
  std::vector<std::int32_t> lengths;              ///< [N] real tokens
  std::vector<std::int32_t> second_starts;        ///< [N] first token of the second segment
  std::vector<std::int32_t> masked_lm_positions;  ///< [N, P]; 0 behind num_labels
  std::vector<std::int32_t> masked_lm_ids;        ///< [N, P]; likewise
  std::vector<std::int32_t> num_labels;           ///< [N]
  std::vector<std::int8_t> next_sentence_labels;  ///< [N] 1: the second segment is random

  std::int64_t num_rows() const { return static_cast<std::int64_t>(lengths.size()); }
};

struct ExampleRules {
  std::int64_t sequence_length = 0;  ///< S, at least kMinSequenceLength
  std::int64_t duplicates = 5;       ///< passes over each document, each with its own pairs and masks
  double short_share = 0.1;          ///< share of the passes that aim at a shorter length, uniform in 2 ... S - 3
  MaskingRules masking;
  std::uint64_t seed = 0;
};

/// Three specials and a token in each segment.
inline constexpr std::int64_t kMinSequenceLength = 5;

/// Places for masked tokens in a sequence where nothing else is said: 20, 60 and 80 at 128, 384 and 512 tokens, as in BERT's recipes.
constexpr std::int64_t default_max_predictions(std::int64_t sequence_length) { return (5 * sequence_length + 31) / 32; }

/// What could not be made as the rules say.
struct ExampleCounts {
  std::int64_t pairs_without_other_document = 0;  ///< would have been random, became the true successor
  std::int64_t lone_sentences = 0;                ///< had neither a successor nor another document: no row
};

/// Appends the rows of all passes over documents [first, documents.size()): pass by pass, document by document. The documents
/// before `first` only serve as sources of random segments.
ExampleCounts make_examples(const std::vector<TokenDocument>& documents, std::size_t first, const ExampleRules& rules,
                            Masker& masker, ExampleRows& rows);

}  // namespace tempo::data
