#include "data/prepare.h"

#include <c10/util/Exception.h>
#include <sys/resource.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/parallel_pipeline.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "data/shard_set.h"

namespace tempo::data {
namespace {

// A chunk is this large up to five duplicates, and smaller with more, so that its rows stay of one size.
constexpr std::size_t kChunkBytes = std::size_t{1} << 19;
constexpr std::size_t kMinChunkBytes = std::size_t{1} << 16;
constexpr std::int64_t kChunkDuplicates = 5;
// The number of shards, where none is asked for: slots of all rows / this. 32,000 rows of 128 tokens a shard are read in a
// fraction of a second; more than 256 shards only make more files.
constexpr double kSlotsPerShard = 4e6;
constexpr double kMaxDefaultShards = 256;
constexpr double kBytesPerToken = 4.3;  // of English, by BERT's vocabulary
constexpr double kGzipRatio = 3;        // of English
// Chunks under way: enough that no thread waits for the ones that go in order.
constexpr std::size_t kChunksPerThread = 2;

/// Every shard keeps a file open; the limit for a process is often 1024.
void allow_open_files(std::int64_t num_shards) {
  constexpr std::int64_t kOthers = 256;  // libraries, input, terminal
  const auto wanted = static_cast<rlim_t>(num_shards + kOthers);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// One chunk on its way through the pipeline.
struct Work {
  TextChunk text;
  PrepareProgress progress;
  ExampleRows rows;
  std::vector<PendingBlock> blocks;
};

/// What a thread has of its own. Counts are sums of integers: their total does not depend on who counted.
struct Worker {
  std::unique_ptr<Tokenizer> tokenizer;
  SentenceSplitter splitter;
  Masker masker;
  std::vector<std::int64_t> histogram;  ///< of the corpus's tokens
  PrepareSummary counts;                ///< sentences, bad_utf8, one_sentence_documents, pieces, examples

  Worker(const Tokenizer& prototype, SentenceRule rule, const Masker& prepared)
      : tokenizer(prototype.clone()), splitter(rule), masker(prepared), histogram(prototype.vocabulary().size()) {}

  /// `is_repeated`: the piece has been counted before.
  TokenDocument tokenize(TextPiece& piece, bool is_repeated) {
    TokenDocument document;
    document.document = piece.document;
    document.piece = piece.piece;
    const std::int64_t repaired = repair_utf8(piece.text);
    splitter.split(piece.text, [&](std::string_view sentence) {
      tokenizer->encode(sentence, document.ids);
      const auto end = static_cast<std::int32_t>(document.ids.size());
      if (end > document.sentence_starts.back()) document.sentence_starts.push_back(end);
    });
    if (is_repeated) return document;
    counts.bad_utf8 += repaired;
    counts.sentences += document.num_sentences();
    counts.one_sentence_documents += document.num_sentences() < 2 ? 1 : 0;
    ++counts.pieces;
    for (const std::int32_t id : document.ids) ++histogram[id];
    return document;
  }

  void add_to(PrepareSummary& summary, std::vector<std::int64_t>& total) const {
    summary.sentences += counts.sentences;
    summary.bad_utf8 += counts.bad_utf8;
    summary.one_sentence_documents += counts.one_sentence_documents;
    summary.pieces += counts.pieces;
    summary.examples.lone_sentences += counts.examples.lone_sentences;
    summary.examples.pairs_without_other_document += counts.examples.pairs_without_other_document;
    for (std::size_t id = 0; id < total.size(); ++id) total[id] += histogram[id];
  }
};

/// A uniformly random order of the rows of a chunk (Fisher and Yates).
std::vector<std::int64_t> shuffled_order(std::int64_t num_rows, std::uint64_t seed, std::uint64_t chunk) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(num_rows));
  for (std::int64_t row = 0; row < num_rows; ++row) order[row] = row;
  Random random(seed, Random::Purpose::kShuffle, chunk);
  for (std::int64_t left = num_rows; left > 1; --left) {
    std::swap(order[left - 1], order[random.below(static_cast<std::uint32_t>(left))]);
  }
  return order;
}

double entropy_of(const std::vector<std::int64_t>& histogram, std::int64_t total) {
  double entropy = 0;
  for (const std::int64_t count : histogram) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(total);
    entropy -= share * std::log(share);
  }
  return entropy;
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Tokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        masker_(tokenizer, options.examples.masking),
        reader_(corpus_options(options)),
        training_(options.folder, options.name + "_training_", num_shards(), rules().sequence_length,
                  rules().masking.max_predictions),
        validation_(options.folder / "validation", options.name + "_test_", num_validation_shards(),
                    rules().sequence_length, rules().masking.max_predictions),
        workers_([this] { return Worker(tokenizer_, options_.sentences, masker_); }) {}

  PrepareSummary run() {
    const int threads = options_.threads > 0 ? static_cast<int>(options_.threads) : tbb::info::default_concurrency();
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
    allow_open_files(num_shards() + num_validation_shards());
    run_pipeline(static_cast<std::size_t>(threads) * kChunksPerThread);
    write_rest(training_);
    write_rest(validation_);
    PrepareSummary summary = summarise();
    check(summary);
    training_.close(attributes("training"));
    validation_.close(attributes("validation"));
    return summary;
  }

 private:
  const ExampleRules& rules() const { return options_.examples; }

  static CorpusOptions corpus_options(const PrepareOptions& options) {
    CorpusOptions corpus = options.corpus;
    corpus.seed = options.examples.seed;
    const std::int64_t duplicates = std::max(options.examples.duplicates, kChunkDuplicates);
    corpus.chunk_bytes =
        std::max(kMinChunkBytes, kChunkBytes * kChunkDuplicates / static_cast<std::size_t>(duplicates));
    return corpus;
  }

  std::int64_t num_shards() const {
    if (options_.num_shards > 0) return options_.num_shards;
    double bytes = 0;
    for (const auto& input : options_.corpus.inputs) {
      std::error_code ignored;
      bytes += static_cast<double>(std::filesystem::file_size(input, ignored)) *
               (input.extension() == ".gz" ? kGzipRatio : 1);
    }
    const double slots = bytes / kBytesPerToken * static_cast<double>(rules().duplicates);
    return static_cast<std::int64_t>(std::clamp(std::ceil(slots / kSlotsPerShard), 1.0, kMaxDefaultShards));
  }

  std::int64_t num_validation_shards() const {
    const double wanted = static_cast<double>(num_shards()) * options_.corpus.held_out_share;
    return std::max<std::int64_t>(1, std::llround(wanted));
  }

  void run_pipeline(std::size_t chunks_under_way) {
    using tbb::filter_mode;
    const auto read = tbb::make_filter<void, std::shared_ptr<Work>>(
        filter_mode::serial_in_order, [this](tbb::flow_control& control) { return read_chunk(control); });
    const auto make = tbb::make_filter<std::shared_ptr<Work>, std::shared_ptr<Work>>(
        filter_mode::parallel, [this](std::shared_ptr<Work> work) { return make_rows(std::move(work)); });
    const auto deal = tbb::make_filter<std::shared_ptr<Work>, std::shared_ptr<Work>>(
        filter_mode::serial_in_order, [this](std::shared_ptr<Work> work) { return deal_rows(std::move(work)); });
    const auto compress = tbb::make_filter<std::shared_ptr<Work>, std::shared_ptr<Work>>(
        filter_mode::parallel, [](std::shared_ptr<Work> work) {
          for (PendingBlock& block : work->blocks) block.compress();
          return work;
        });
    const auto write = tbb::make_filter<std::shared_ptr<Work>, void>(
        filter_mode::serial_in_order, [this](const std::shared_ptr<Work>& work) { write_blocks(*work); });
    tbb::parallel_pipeline(chunks_under_way, read & make & deal & compress & write);
  }

  std::shared_ptr<Work> read_chunk(tbb::flow_control& control) {
    auto work = std::make_shared<Work>();
    if (!reader_.next(work->text)) {
      control.stop();
      return nullptr;
    }
    work->progress.bytes_read = reader_.bytes_read();
    return work;
  }

  std::shared_ptr<Work> make_rows(std::shared_ptr<Work> work) {
    Worker& worker = workers_.local();
    std::vector<TokenDocument> documents;
    std::size_t first = 0;
    for (std::size_t index = 0; index < work->text.pieces.size(); ++index) {
      const bool is_repeated = index < work->text.num_repeated;
      TokenDocument document = worker.tokenize(work->text.pieces[index], is_repeated);
      if (document.num_sentences() == 0) continue;  // punctuation that no vocabulary keeps
      documents.push_back(std::move(document));
      first += is_repeated ? 1 : 0;
    }
    work->text.pieces.clear();
    const ExampleCounts counts = make_examples(documents, first, rules(), worker.masker, work->rows);
    worker.counts.examples.lone_sentences += counts.lone_sentences;
    worker.counts.examples.pairs_without_other_document += counts.pairs_without_other_document;
    return work;
  }

  std::shared_ptr<Work> deal_rows(std::shared_ptr<Work> work) {
    const auto order = shuffled_order(work->rows.num_rows(), rules().seed, work->text.number);
    set_of(*work).deal(work->rows, order, work->blocks);
    rows_ += work->rows.num_rows();
    work->progress.rows = rows_;
    work->rows = {};
    return work;
  }

  void write_blocks(Work& work) {
    for (const PendingBlock& block : work.blocks) set_of(work).write(block);
    work.progress.bytes_in_all = reader_.bytes_in_all();
    if (options_.on_progress) options_.on_progress(work.progress);
  }

  static void write_rest(ShardSet& set) {
    std::vector<PendingBlock> rest = set.take_rest();
    tbb::parallel_for(std::size_t{0}, rest.size(), [&](std::size_t index) { rest[index].compress(); });
    for (const PendingBlock& block : rest) set.write(block);
  }

  ShardSet& set_of(const Work& work) { return work.text.held_out ? validation_ : training_; }

  PrepareSummary summarise() {
    PrepareSummary summary;
    std::vector<std::int64_t> histogram(tokenizer_.vocabulary().size());
    for (const Worker& worker : workers_) worker.add_to(summary, histogram);
    summary.corpus = reader_.counts();
    for (const std::int64_t count : histogram) summary.tokens += count;
    summary.unknown_tokens = histogram[tokenizer_.vocabulary().specials().unknown];
    summary.unigram_entropy = entropy_of(histogram, summary.tokens);
    const ShardSet::Totals& totals = training_.totals();
    summary.rows = totals.rows;
    summary.real_tokens = totals.real_tokens;
    summary.labels = totals.labels;
    summary.random_next = totals.random_next;
    summary.validation_rows = validation_.totals().rows;
    for (const ShardSet* set : {&training_, &validation_}) {
      for (const auto& [path, rows] : set->files())
        summary.shards.push_back({path.lexically_relative(options_.folder), rows});
    }
    return summary;
  }

  /// What no training set can be made of.
  void check(const PrepareSummary& summary) const {
    const CorpusCounts& corpus = summary.corpus;
    const char* blank_lines = options_.corpus.documents == DocumentRule::kFile
                                  ? "; where blank lines stand between documents, set prepare.documents: blank_line"
                                  : "";
    TORCH_CHECK_VALUE(corpus.documents > 0 && summary.tokens > 0, "prepare.input: no text in ",
                      options_.corpus.inputs.size(), options_.corpus.inputs.size() == 1 ? " file" : " files");
    const std::int64_t training = corpus.documents - corpus.held_out_documents;
    TORCH_CHECK_VALUE(training >= 2, "prepare.input: ", training, training == 1 ? " document" : " documents",
                      corpus.held_out_documents > 0 ? " to train on" : "", ", but next-sentence pairs need two",
                      blank_lines);
    TORCH_CHECK_VALUE(summary.rows > 0, "prepare.input: no pair of segments could be made of ", corpus.documents,
                      " documents");
    if (options_.corpus.held_out_share == 0) return;
    TORCH_CHECK_VALUE(corpus.held_out_documents >= 2 && summary.validation_rows > 0,
                      "prepare.validation: ", options_.corpus.held_out_share, " of ", corpus.documents,
                      " documents holds out ", corpus.held_out_documents,
                      ", but next-sentence pairs need two; hold out more", blank_lines);
  }

  Attributes attributes(const char* split) const {
    const ExampleRules& rules = options_.examples;
    return {{"format", std::string("tempo shard 1")},
            {"tokenizer", tokenizer_.name()},
            {kTokenizerHash, tokenizer_.vocabulary().sha256()},
            {"vocab_size", std::int64_t{tokenizer_.vocabulary().size()}},
            {"seed", static_cast<std::int64_t>(rules.seed)},
            {"documents", std::string(options_.corpus.documents == DocumentRule::kFile ? "file" : "blank_line")},
            {"sentences", std::string(options_.sentences == SentenceRule::kIcu ? "icu" : "lines")},
            {"duplicates", rules.duplicates},
            {"short_share", rules.short_share},
            {"masked_share", rules.masking.masked_share},
            {"whole_word", std::int64_t{rules.masking.whole_word}},
            {"random_words", std::string(rules.masking.random_words == RandomWords::kWords ? "words" : "any")},
            {"validation_share", options_.corpus.held_out_share},
            {"split", std::string(split)}};
  }

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  Masker masker_;
  CorpusReader reader_;
  ShardSet training_;
  ShardSet validation_;
  tbb::enumerable_thread_specific<Worker> workers_;
  std::int64_t rows_ = 0;
};

}  // namespace

PrepareSummary prepare(const PrepareOptions& options, const Tokenizer& tokenizer) {
  TORCH_CHECK(options.examples.sequence_length >= kMinSequenceLength, "sequence length ",
              options.examples.sequence_length);
  TORCH_CHECK_VALUE(
      options.corpus.inputs.size() > 1 || options.corpus.documents == DocumentRule::kBlankLine,
      "prepare.input: one file is one document, but next-sentence pairs need two; where blank lines stand "
      "between documents, set prepare.documents: blank_line");
  return Preparation(options, tokenizer).run();
}

}  // namespace tempo::data
