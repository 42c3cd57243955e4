// Reads the lines of a metrics.jsonl back (docs/formats.md, "metrics.jsonl").
//
// Not for: writing them (metrics.h), what their numbers mean. Thread rule: values; functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace tempo::train {

/// One line.
struct MetricsRecord {
  std::int64_t line = 0;                  ///< in its file, from 1
  std::map<std::string, double> numbers;  ///< by key, `step` left out; NaN where the line says null
};

/// What a metrics.jsonl holds, by step.
struct MetricsRecords {
  std::map<std::int64_t, MetricsRecord> train;
  std::map<std::int64_t, MetricsRecord> validation;

  /// The largest step with a train record, or 0.
  std::int64_t last_step() const { return train.empty() ? 0 : train.rbegin()->first; }
};

/// Reads all train and validation records; records of other kinds are left out, and so is an unfinished last line, as a
/// run that is being written or was killed leaves it. A missing file has no records.
/// Throws c10::ValueError "FILE:LINE: ..." for a line that is no JSON object, lacks kind or step, or is the second of
/// its kind for a step.
MetricsRecords read_metrics(const std::filesystem::path& file);

}  // namespace tempo::train
