// Where two runs part: in their configuration, in what else decides their numbers, or at a step.
//
// Not for: printing (apps/compare.cpp). Thread rule: values; functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tempo::train {

/// A text that is not the same in both. What one run does not have at all is not set.
struct TextDifference {
  std::string key;
  std::optional<std::string> a;
  std::optional<std::string> b;
};

/// A number of metrics.jsonl that is not the same in both, as exact doubles. What one run does not have at all is not
/// set; what is not finite is NaN, and equal to itself.
struct NumberDifference {
  std::int64_t step = 0;
  std::string key;  ///< "loss"; "validation.loss" in an evaluation
  std::optional<double> a;
  std::optional<double> b;

  /// |a - b| / max(|a|, |b|); not set where one of them is not a finite number.
  std::optional<double> relative() const;
};

struct RunComparison {
  std::vector<TextDifference> config;       ///< in the order of A's config.yaml, then keys that only B has
  std::vector<TextDifference> environment;  ///< likewise; empty where not both have an environment.json
  bool a_has_environment = false;
  bool b_has_environment = false;
  std::optional<NumberDifference> first;  ///< at the first step at which any number differs
  std::int64_t steps_agreeing = 0;        ///< common steps before `first`, or all of them
  std::int64_t steps_compared = 0;        ///< steps that have a record in both
  std::int64_t a_last_step = 0;           ///< 0: no record
  std::int64_t b_last_step = 0;

  bool has_environments() const { return a_has_environment && b_has_environment; }

  /// Nothing that counts differs, and there were steps to compare.
  bool agrees() const { return config.empty() && environment.empty() && !first && steps_compared > 0; }
};

/// Compares two run directories. What does not count: run.dir and run.overwrite; times, rates and peaks; how far each
/// run got.
/// Throws c10::ValueError naming the path that is no run directory, or the file (and line) that cannot be understood.
RunComparison compare_runs(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace tempo::train
