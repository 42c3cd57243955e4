// Text -> shards: the whole of `tempo prepare` but the command line and the output folder's life.
//
// A pipeline: chunks of text are read in order, turned into rows on all threads, dealt to the shards in order, compressed
// on all threads and written in order. What it writes depends on corpus, vocabulary and options, not on the number of
// threads or on time. Memory holds a few chunks per thread and one block of rows per shard, whatever the corpus.
// Not for: locks, renaming, the manifest (train/shard_folder.h). Thread rule: one call at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/examples.h"
#include "data/sentences.h"
#include "data/tokenizer.h"

namespace tempo::data {

struct PrepareProgress {
  std::int64_t bytes_read = 0;  ///< of the input files as they lie on disk
  std::int64_t bytes_in_all = 0;
  std::int64_t rows = 0;
};

struct PrepareOptions {
  CorpusOptions corpus;  ///< chunk_bytes and seed are set by prepare()
  SentenceRule sentences = SentenceRule::kIcu;
  ExampleRules examples;
  std::int64_t num_shards = 0;   ///< of the training set; 0: by the size of the input
  std::int64_t threads = 0;      ///< 0: all cores this process may use
  std::string name;              ///< shards are NAME_training_0000.hdf5 and validation/NAME_test_0000.hdf5
  std::filesystem::path folder;  ///< to write them to; exists
  std::function<void(const PrepareProgress&)> on_progress;
};

struct PreparedShard {
  std::filesystem::path path;  ///< relative to the folder
  std::int64_t rows = 0;
};

/// What was made of the corpus, for the closing summary and the manifest.
struct PrepareSummary {
  CorpusCounts corpus;
  ExampleCounts examples;
  std::int64_t sentences = 0;
  std::int64_t bad_utf8 = 0;                ///< parts that are not UTF-8, read as U+FFFD
  std::int64_t one_sentence_documents = 0;  ///< pieces of documents with fewer than two sentences
  std::int64_t pieces = 0;
  std::int64_t tokens = 0;  ///< of the corpus, each document once
  std::int64_t unknown_tokens = 0;
  double unigram_entropy = 0;  ///< of these tokens, in nats: the loss of a model that knows only frequencies
  std::int64_t rows = 0;       ///< of the training set, as all that follows
  std::int64_t real_tokens = 0;
  std::int64_t labels = 0;
  std::int64_t random_next = 0;
  std::int64_t validation_rows = 0;
  std::vector<PreparedShard> shards;  ///< of both sets
};

/// Reads the corpus and writes all shards. Throws c10::ValueError where the input cannot make a training set (no documents,
/// only one, none held out though some should be), c10::Error where a file cannot be written.
PrepareSummary prepare(const PrepareOptions& options, const Tokenizer& tokenizer);

}  // namespace tempo::data
