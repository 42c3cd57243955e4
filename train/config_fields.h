// The declaration of every key of a run's configuration: one entry drives YAML, overrides, the resolved config.yaml,
// help and the hints for unknown keys. A key is added in config_fields.cpp (those of `prepare` in prepare_fields.cpp), and nowhere else.
//
// Not for: files and scalars (config_reader.h), rules between keys (run_config.cpp).
// Thread rule: constant after first use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config_reader.h"
#include "train/run_config.h"

namespace tempo::train {

/// A configuration while it is read: also holds the keys that are resolved into others.
struct Draft : RunConfig {
  std::string model_size;
  double warmup_ratio = 0;
};

/// The commands that read a configuration.
enum class Command { kTrain, kPrepare };

struct Field {
  std::string key;       ///< dotted path
  std::string allowed;   ///< type and bounds, for help
  std::string fallback;  ///< default, for help; empty where there is none
  std::string sentence;
  std::string example;  ///< a line of YAML, where the key is required
  std::vector<Command> required_by;
  std::string hugging_face_key;  ///< for what belongs to a model's weights: its name in their config.json

  /// Checks type and bounds and stores the value.
  std::function<void(Draft&, const WrittenValue&)> read;
  /// What stands after "key:" in the resolved YAML; empty for an optional that is not set. Not set itself: the key is
  /// not written, because others hold what it decided.
  std::function<std::string(const Draft&)> print;
};

struct Section {
  std::string name;
  std::string sentence;
};

/// Appends the fields of the section "prepare".
void append_prepare_fields(std::vector<Field>& fields);

/// All sections and all fields, in the order of the resolved file.
const std::vector<Section>& config_sections();
const std::vector<Field>& config_fields();

}  // namespace tempo::train
