#include "train/preparer.h"

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/metrics.h"
#include "train/progress_display.h"
#include "train/shard_folder.h"
#include "train/stop_request.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kVocabulary = "vocab.txt";
// Fewer than this share of second segments that are random, though half should be, is worth a warning.
constexpr double kFewRandom = 0.35;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double share_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// 1234567 -> "1,234,567".
std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

fs::path vocabulary_file(const PrepareConfig& config) {
  std::error_code ignored;
  return fs::is_directory(config.tokenizer, ignored) ? config.tokenizer / kVocabulary : config.tokenizer;
}

std::unique_ptr<data::Tokenizer> read_tokenizer(const PrepareConfig& config) {
  auto vocabulary = std::make_shared<const data::Vocabulary>(data::Vocabulary::read(vocabulary_file(config)));
  return data::make_wordpiece(std::move(vocabulary), config.lowercase);
}

data::PrepareOptions options_of(const RunConfig& config) {
  const PrepareConfig& prepare = config.prepare;
  data::PrepareOptions options;
  options.corpus.inputs = expand_inputs("prepare.input", prepare.input);
  options.corpus.documents = prepare.documents;
  options.corpus.held_out_share = prepare.validation;
  options.sentences = prepare.sentences;
  options.examples.sequence_length = config.data.sequence_length;
  options.examples.duplicates = prepare.duplicates;
  options.examples.short_share = prepare.short_share;
  options.examples.seed = prepare.seed;
  options.examples.masking = {prepare.masked_share, config.data.max_predictions, prepare.whole_word,
                              prepare.random_words};
  options.num_shards = prepare.shards;
  options.threads = prepare.threads;
  const fs::path output = prepare.output.has_filename() ? prepare.output : prepare.output.parent_path();
  options.name = output.filename().string();
  return options;
}

/// Unwinds the pipeline once a signal has asked for the end.
struct Stopped {};

/// Shows a bar from the progress of the pipeline.
class PrepareDisplay {
 public:
  void show(const data::PrepareProgress& progress) {
    const double share = share_of(progress.bytes_read, progress.bytes_in_all);
    const double seconds = seconds_since(start_);
    const std::string text = fmt::format(
        "{} of {}  {} rows  {}/s", bytes_text(progress.bytes_read), bytes_text(progress.bytes_in_all),
        grouped(progress.rows),
        bytes_text(static_cast<std::int64_t>(static_cast<double>(progress.bytes_read) / std::max(seconds, 1e-3))));
    display_.update(share, text, share > 0 ? seconds * (1 - share) / share : std::numeric_limits<double>::infinity());
  }

 private:
  Clock::time_point start_ = Clock::now();
  ProgressDisplay display_{"prepare"};
};

std::uintmax_t bytes_of(const fs::path& folder, const std::vector<data::PreparedShard>& shards) {
  std::uintmax_t bytes = 0;
  for (const data::PreparedShard& shard : shards) bytes += fs::file_size(folder / shard.path);
  return bytes;
}

/// The same bytes whenever and wherever the same is made: no times, no paths.
std::string manifest_text(const RunConfig& config, const data::Tokenizer& tokenizer,
                          const data::PrepareSummary& summary) {
  Json shards = Json::array();
  for (const data::PreparedShard& shard : summary.shards) {
    shards.push_back({{"path", shard.path.string()}, {"rows", shard.rows}});
  }
  const std::int64_t slots = summary.rows * config.data.sequence_length;
  const Json manifest = {{"format", 1},
                         {"tokenizer", tokenizer.name()},
                         {"tokenizer_sha256", tokenizer.vocabulary().sha256()},
                         {"vocab_size", tokenizer.vocabulary().size()},
                         {"sequence_length", config.data.sequence_length},
                         {"max_predictions", config.data.max_predictions},
                         {"duplicates", config.prepare.duplicates},
                         {"whole_word", config.prepare.whole_word},
                         {"seed", config.prepare.seed},
                         {"documents", summary.corpus.documents},
                         {"held_out_documents", summary.corpus.held_out_documents},
                         {"text_bytes", summary.corpus.text_bytes},
                         {"sentences", summary.sentences},
                         {"tokens", summary.tokens},
                         {"unknown_tokens", summary.unknown_tokens},
                         {"unigram_entropy", summary.unigram_entropy},
                         {"bad_utf8", summary.bad_utf8},
                         {"rows", summary.rows},
                         {"validation_rows", summary.validation_rows},
                         {"fill", share_of(summary.real_tokens, slots)},
                         {"masked_share", share_of(summary.labels, summary.real_tokens)},
                         {"next_sentence_share", share_of(summary.random_next, summary.rows)},
                         {"shards", std::move(shards)}};
  return manifest.dump(2) + "\n";
}

/// What transformers needs beside vocab.txt to tokenize alike.
std::string tokenizer_config_text(const PrepareConfig& config) {
  const Json text = {{"do_lower_case", config.lowercase}, {"tokenizer_class", "BertTokenizer"}};
  return text.dump(2) + "\n";
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  TORCH_CHECK(file.good(), path.string(), " cannot be read");
  return text.str();
}

void warn(const RunConfig& config, const data::PrepareSummary& summary) {
  if (summary.bad_utf8 > 0) {
    spdlog::warn("{} places in the text are not UTF-8; each was read as U+FFFD, which the tokenizer drops",
                 grouped(summary.bad_utf8));
  }
  if (summary.corpus.empty_files > 0) spdlog::warn("{} input files hold no text", grouped(summary.corpus.empty_files));
  if (summary.corpus.cut_documents > 0) {
    spdlog::warn("{} documents are longer than {} and were cut into pieces", grouped(summary.corpus.cut_documents),
                 bytes_text(data::kMaxPieceBytes));
  }
  if (summary.one_sentence_documents == summary.pieces) {
    spdlog::warn("no document has two sentences, so that every second segment is random{}",
                 config.prepare.documents == data::DocumentRule::kBlankLine
                     ? "; do blank lines stand between sentences instead of between documents?"
                     : "");
  }
  if (share_of(summary.random_next, summary.rows) < kFewRandom) {
    spdlog::warn(
        "only {:.1f} % of the second segments are random, because {} pairs had no other document near them; cut the "
        "text "
        "into shorter documents",
        100 * share_of(summary.random_next, summary.rows), grouped(summary.examples.pairs_without_other_document));
  }
}

}  // namespace

std::string summary_text(const RunConfig& config, const data::PrepareSummary& summary) {
  const data::CorpusCounts& corpus = summary.corpus;
  std::int64_t training_shards = 0;
  for (const data::PreparedShard& shard : summary.shards) training_shards += shard.path.has_parent_path() ? 0 : 1;
  std::string text = fmt::format(
      "  documents   {}{}\n"
      "  sentences   {}\n"
      "  tokens      {} ({:.2f} % unknown), unigram entropy {:.3f} nats\n"
      "  rows        {} of {} tokens in {} {}, {} pass{} over the text\n"
      "  fill        {:.3f} of the slots are real tokens\n"
      "  masked      {:.4f} of the real tokens; {:.3f} of the second segments are random\n",
      grouped(corpus.documents),
      corpus.held_out_documents > 0 ? fmt::format(", {} of them held out", grouped(corpus.held_out_documents)) : "",
      grouped(summary.sentences), grouped(summary.tokens), 100 * share_of(summary.unknown_tokens, summary.tokens),
      summary.unigram_entropy, grouped(summary.rows), config.data.sequence_length, training_shards,
      training_shards == 1 ? "shard" : "shards", config.prepare.duplicates, config.prepare.duplicates == 1 ? "" : "es",
      share_of(summary.real_tokens, summary.rows * config.data.sequence_length),
      share_of(summary.labels, summary.real_tokens), share_of(summary.random_next, summary.rows));
  if (summary.validation_rows > 0) text += fmt::format("  held out    {} rows\n", grouped(summary.validation_rows));
  return text;
}

std::string check_preparation(const RunConfig& config) {
  const data::PrepareOptions options = options_of(config);
  const std::unique_ptr<data::Tokenizer> tokenizer = read_tokenizer(config.prepare);
  const data::Masker masker(*tokenizer, options.examples.masking);
  ShardFolder::check(config.prepare.output, config.prepare.overwrite);
  return fmt::format(
      "The configuration is valid; nothing was written.\n"
      "  input       {} {} of {}\n"
      "  tokenizer   {}, {} tokens\n"
      "  rows        {} tokens, up to {} predictions each, {} passes over the text\n"
      "  into        {}\n",
      options.corpus.inputs.size(), options.corpus.inputs.size() == 1 ? "file" : "files",
      bytes_text(data::CorpusReader(options.corpus).bytes_in_all()), tokenizer->name(),
      grouped(tokenizer->vocabulary().size()), config.data.sequence_length, config.data.max_predictions,
      config.prepare.duplicates, config.prepare.output.string());
}

std::string prepare_shards(const RunConfig& config) {
  const Clock::time_point start = Clock::now();
  data::PrepareOptions options = options_of(config);
  const std::unique_ptr<data::Tokenizer> tokenizer = read_tokenizer(config.prepare);
  ShardFolder folder(config.prepare.output, config.prepare.overwrite);
  options.folder = folder.staging();
  data::PrepareSummary summary;
  try {
    PrepareDisplay display;
    options.on_progress = [&](const data::PrepareProgress& progress) {
      display.show(progress);
      if (StopRequest::requested()) throw Stopped();
    };
    summary = data::prepare(options, *tokenizer);
  } catch (const Stopped&) {
    spdlog::info("stopped by {}; {} is as it was, and the same command starts over", StopRequest::requested(),
                 config.prepare.output.string());
    return "";
  }
  const std::uintmax_t bytes = bytes_of(folder.staging(), summary.shards);
  std::vector<fs::path> shards;
  for (const data::PreparedShard& shard : summary.shards) shards.push_back(shard.path);
  folder.commit(shards, {{kVocabulary, content_of(vocabulary_file(config.prepare))},
                         {"tokenizer_config.json", tokenizer_config_text(config.prepare)},
                         {kPrepareManifest, manifest_text(config, *tokenizer, summary)}});
  warn(config, summary);
  return fmt::format("{}: {} in {} shards, {:.1f} s\n", config.prepare.output.string(),
                     bytes_text(static_cast<std::int64_t>(bytes)), summary.shards.size(), seconds_since(start)) +
         summary_text(config, summary);
}

}  // namespace tempo::train
