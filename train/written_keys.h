// What is written in a configuration file and in overrides of it: every key known, none twice, overrides in place of the file's
// values.
//
// Not for: what the values mean (run_config.cpp). Thread rule: a value.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/config_reader.h"

namespace tempo::train {

// Keys that say one thing in two ways.
inline constexpr const char* kWarmupSteps = "schedule.warmup_steps";
inline constexpr const char* kWarmupRatio = "schedule.warmup_ratio";

class WrittenKeys {
 public:
  /// Throws c10::ValueError as load_run_config does.
  WrittenKeys(const std::filesystem::path& file, const std::vector<std::string>& overrides);

  /// Null where the key is not written.
  const WrittenValue* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }

  /// Whether a key of `layers` is there to have an effect: overrides of others may well take that of the file's away.
  bool is_meant(const std::string& key) const;

  /// The start of a message about the value of `key`, written or not.
  std::string place(const std::string& key) const;

  const std::string& file() const { return file_; }

 private:
  void add(WrittenValue value);
  void add_alternative(const WrittenValue& value, const char* other);
  void forget_file_layers();

  std::string file_;
  std::map<std::string, WrittenValue> values_;
};

}  // namespace tempo::train
