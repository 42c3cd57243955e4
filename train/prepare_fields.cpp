// The section "prepare" of a configuration (declared in config_fields.h).
#include <limits>

#include "train/field_kinds.h"

namespace tempo::train {
namespace {

constexpr std::int64_t kMaxShards = 4096;  // each keeps a file open while it is written

const std::vector<std::pair<std::string, data::DocumentRule>> kDocumentRules = {
    {"file", data::DocumentRule::kFile}, {"blank_line", data::DocumentRule::kBlankLine}};
const std::vector<std::pair<std::string, data::SentenceRule>> kSentenceRules = {{"icu", data::SentenceRule::kIcu},
                                                                                {"lines", data::SentenceRule::kLines}};
const std::vector<std::pair<std::string, data::RandomWords>> kRandomWords = {{"words", data::RandomWords::kWords},
                                                                             {"any", data::RandomWords::kAny}};

}  // namespace

void append_prepare_fields(std::vector<Field>& fields) {
  constexpr auto prepare = &RunConfig::prepare;
  using P = PrepareConfig;
  const auto by_prepare = [](Field field, std::string example) {
    return required(std::move(field), std::move(example), Command::kPrepare);
  };
  fields.push_back(by_prepare(
      path_list("prepare.input", at(prepare, &P::input),
                "Text: files (plain or gzip), patterns with * and ?, or folders, of which every "
                "*.txt, *.md and *.rst file but a vocab.txt is taken, also packed (.gz) and from folders inside."),
      "prepare: {input: corpus}"));
  fields.push_back(by_prepare(path("prepare.tokenizer", at(prepare, &P::tokenizer),
                                   "WordPiece vocabulary: a vocab.txt, or a folder that has one."),
                              "prepare: {tokenizer: vocab.txt}"));
  fields.push_back(by_prepare(
      path("prepare.output", at(prepare, &P::output), "Folder for the shards; held-out rows go to validation/ in it."),
      "prepare: {output: shards}"));
  const std::size_t first_with_default = fields.size();
  fields.push_back(boolean("prepare.overwrite", at(prepare, &P::overwrite),
                           "Replace a finished set of shards that is already in prepare.output."));
  fields.push_back(boolean("prepare.lowercase", at(prepare, &P::lowercase),
                           "Lower-case the text and strip accents, as uncased vocabularies need."));
  fields.push_back(choice("prepare.documents", at(prepare, &P::documents), kDocumentRules,
                          "What a document is: a file, or what stands between blank lines."));
  fields.push_back(choice("prepare.sentences", at(prepare, &P::sentences), kSentenceRules,
                          "Where sentences end: by Unicode's rules, or one sentence a line."));
  fields.push_back(number("prepare.duplicates", at(prepare, &P::duplicates), Bounds<std::int64_t>{1, 1000},
                          "Passes over the text, each with its own pairs and masks."));
  fields.push_back(number("prepare.masked_share", at(prepare, &P::masked_share), Bounds<double>{0, 1, true},
                          "Share of the tokens that are to be predicted; at most data.max_predictions a sequence."));
  fields.push_back(number("prepare.short_share", at(prepare, &P::short_share), Bounds<double>{0, 1},
                          "Share of the passes over a document that make sequences of a random shorter length."));
  fields.push_back(
      boolean("prepare.whole_word", at(prepare, &P::whole_word), "Mask all pieces of a word or none of them."));
  fields.push_back(choice("prepare.random_words", at(prepare, &P::random_words), kRandomWords,
                          "What may stand in for a token: words, or any entry of the vocabulary, specials too."));
  fields.push_back(number("prepare.validation", at(prepare, &P::validation), Bounds<double>{0, 0.5},
                          "Share of the documents that is held out, for data.validation; 0: none."));
  fields.push_back(number("prepare.shards", at(prepare, &P::shards), Bounds<std::int64_t>{0, kMaxShards},
                          "Number of training shards; 0: by the size of the input, at most 256."));
  fields.push_back(number("prepare.seed", at(prepare, &P::seed),
                          Bounds<std::uint64_t>{0, std::numeric_limits<std::int64_t>::max()},
                          "Decides pairs, masks, order and what is held out."));
  fields.push_back(number("prepare.threads", at(prepare, &P::threads), Bounds<std::int64_t>{0, kMaxThreads},
                          "CPU threads; 0: every core that this process may use. Does not change the shards."));
  // Printed only where the section is in use: most runs are given shards.
  for (std::size_t index = first_with_default; index < fields.size(); ++index) {
    fields[index].print = [print = fields[index].print](const Draft& draft) {
      return draft.prepare.input.empty() ? std::string() : print(draft);
    };
  }
}

}  // namespace tempo::train
