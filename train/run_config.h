// The configuration of a run: one typed tree, filled from YAML and from k=v overrides, and checked.
//
// Every field is declared once (config_fields.cpp) with its key, default, bounds and a sentence; that declaration
// drives YAML, overrides, --help, the resolved config.yaml and the nearest-key hint. Defaults are those of the structs
// below. Paths in a YAML file are relative to that file; paths in an override are relative to the working directory;
// the resolved configuration holds absolute paths.
//
// Not for: acting on the values. Thread rule: a value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/masking.h"
#include "data/sentences.h"
#include "layers/modules.h"
#include "model/config.h"
#include "train/schedule.h"

namespace tempo::train {

/// The largest train.micro_batch that is chosen when none is written.
inline constexpr std::int64_t kLargestDefaultMicroBatch = 32;

struct DataConfig {
  std::vector<std::string> shards;      ///< as written, made absolute; may hold * and ?
  std::vector<std::string> validation;  ///< likewise, never trained on; empty: nothing is held out
  std::int64_t sequence_length = 0;     ///< 0: that of the shards
  std::int64_t max_predictions = 0;     ///< 0: that of the shards
  bool shuffle = true;
};

struct TrainConfig {
  std::string device = "auto";  ///< auto | cpu | cuda
  std::string precision = "fp32";
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;  ///< 0 in YAML is refused; default: global_batch, at most 32
  std::int64_t steps = 0;
  std::uint64_t seed = 42;
  double grad_clip = 1.0;               ///< largest global gradient norm; 0 = off
  std::int64_t threads = 0;             ///< 0: all cores this process may use
  std::int64_t max_skipped_steps = 10;  ///< in a row, because a loss or a gradient is not finite; one more ends the run
  /// Steps from one evaluation to the next; resolved to a twentieth of steps, at least 1. 0: data.validation is not set.
  std::int64_t evaluate_every = 0;
};

struct OptimizerConfig {
  std::string name = "adamw";  ///< adamw | lamb
  double lr = 1e-4;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  bool bias_correction = true;
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kLinear;
  double warmup_steps = 0;  ///< resolved from warmup_steps or warmup_ratio x steps
  double min_lr = 0;
};

struct RunSection {
  std::filesystem::path dir;
  std::int64_t log_every = 10;
  std::int64_t checkpoint_every = 0;  ///< 0: only at the end
  std::int64_t keep = 3;              ///< newest checkpoints that stay; 0: all
  bool export_model = true;           ///< key run.export
  bool overwrite = false;
};

struct PrepareConfig {
  std::vector<std::string> input;  ///< as written, made absolute; may hold * and ?
  std::filesystem::path tokenizer;
  std::filesystem::path output;
  bool overwrite = false;
  bool lowercase = true;
  data::DocumentRule documents = data::DocumentRule::kFile;
  data::SentenceRule sentences = data::SentenceRule::kIcu;
  std::int64_t duplicates = 5;
  double masked_share = 0.15;
  double short_share = 0.1;
  bool whole_word = false;
  data::RandomWords random_words = data::RandomWords::kWords;
  double validation = 0;
  std::int64_t shards = 0;  ///< 0: by the size of the input
  std::uint64_t seed = 42;
  std::int64_t threads = 0;  ///< 0: all cores this process may use
};

struct InitConfig {
  std::optional<std::filesystem::path> from;  ///< Hugging Face folder or checkpoint whose weights the run starts from
  bool keep_optimizer = false;                ///< key init.optimizer: its moments too
  std::int64_t step = 0;                      ///< steps that count as done: rate and data go on after them
};

/// Everything `tempo train` and `tempo prepare` need. Fields are final: defaults filled in, paths absolute, bounds and
/// combinations checked.
struct RunConfig {
  model::ModelConfig model;
  std::string layers_preset = "baseline";
  layers::LayerOptions layers;  ///< the preset's, single keys over it
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  RunSection run;
  InitConfig init;
  PrepareConfig prepare;

  Schedule learning_rates() const;
};

/// Reads `file`, applies `overrides` ("section.key=value"; lists as [a, b]) and checks the result. An override replaces
/// the file's key; schedule.warmup_steps and schedule.warmup_ratio replace each other, and layers.preset replaces all layers.* keys
/// of the file.
/// With init.from the architecture comes from that folder's config.json; a key that is also written and decides what
/// the weights compute must agree, the others (dropouts, vocab_multiple; that one only with fresh moments) may differ.
/// Throws c10::ValueError: "FILE:LINE:COLUMN: KEY: ..." for YAML, "override KEY=VALUE: ..." for an override; unknown
/// keys name the nearest known one, misplaced ones the section they belong to.
RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// A key whose value differs from that of the run that goes on.
struct ConfigChange {
  std::string key;
  std::string before;
  std::string after;
};

/// The configuration of the run in `run_dir`, with overrides: for --resume. `changes` gets what they change. run.dir is `run_dir`,
/// wherever the run was made. Throws c10::ValueError as load_run_config, and for an override of a key that decides what the
/// weights are or which examples come next.
RunConfig load_resumed_config(const std::filesystem::path& run_dir, const std::vector<std::string>& overrides,
                              std::vector<ConfigChange>& changes);

/// load_run_config for `tempo bench`: neither shards, steps, batches nor a run directory need be there. train.micro_batch is 8 and
/// data.sequence_length model.max_positions where they are not written.
RunConfig load_bench_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// load_run_config for `tempo prepare`: what only training needs may be missing and its combinations are not looked at;
/// data.sequence_length is required, data.max_predictions is filled in.
RunConfig load_prepare_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

/// The resolved configuration as YAML, every key with its value, in the order of declaration (init.from,
/// data.validation, train.evaluate_every and prepare only where they are set; model.size and schedule.warmup_ratio as the
/// numbers that they stand for). load_run_config on it, in whatever folder, gives an equal run and the same text.
std::string resolved_yaml(const RunConfig& config);

/// The keys of the named sections (all, where none is named): name, type and bounds, default, sentence; at most 100 columns
/// wide. Printed by `tempo train --help` and `tempo prepare --help`.
std::string describe_keys(const std::vector<std::string>& sections = {});

/// The shard files that `patterns` name, sorted by path (byte by byte), each once: patterns are expanded, a folder
/// stands for every *.hdf5 and *.h5 file in it. Reads folders, opens no file.
/// Throws c10::ValueError naming `key` (data.shards, data.validation) and the pattern that matches nothing.
std::vector<std::filesystem::path> expand_shards(const std::string& key, const std::vector<std::string>& patterns);

/// The same for text (prepare.input); a folder stands for every *.txt, *.md and *.rst file in it and below,
/// packed (.gz) or not, but a vocab.txt.
std::vector<std::filesystem::path> expand_inputs(const std::string& key, const std::vector<std::string>& patterns);

}  // namespace tempo::train
