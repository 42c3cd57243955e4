// What a logged step says: the line of metrics.jsonl and the line on the console (docs/formats.md, "metrics.jsonl").
//
// Not for: deciding when to log. Thread rule: one writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace tempo::train {

/// One training record. Losses, accuracy and norm are those of the step; times and rates are means since the record before;
/// sequences and tokens are totals since step 1.
struct TrainRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double loss = 0;
  double token_loss = 0;      ///< key mlm_loss
  double sentence_loss = 0;   ///< key nsp_loss
  double token_accuracy = 0;  ///< key mlm_accuracy
  double lr = 0;
  double grad_norm = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;       ///< slots, padding included
  std::int64_t real_tokens = 0;  ///< without padding
  double step_ms = 0;
  double sequences_per_s = 0;
  double tokens_per_s = 0;                ///< slots, padding included
  std::int64_t peak_allocated_bytes = 0;  ///< requested bytes, since the record before
  std::int64_t peak_reserved_bytes = 0;   ///< CUDA only; 0 on the CPU and then not written
};

class MetricsWriter {
 public:
  /// Throws c10::Error when the file cannot be written.
  explicit MetricsWriter(const std::filesystem::path& file);

  /// Appends one line and hands it to the system. Throws c10::Error when that fails (a full disk).
  void write(const TrainRecord& record);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

/// The record as one line for a person; `num_steps` and the rate give the time left.
std::string console_line(const TrainRecord& record, std::int64_t num_steps);

/// "1.25 GiB", "312 MiB": bytes in binary units.
std::string bytes_text(std::int64_t bytes);

}  // namespace tempo::train
