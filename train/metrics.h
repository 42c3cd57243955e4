// What a logged step or evaluation says: the line of metrics.jsonl, the event for TensorBoard and the line on the console
// (docs/formats.md, "metrics.jsonl").
//
// Not for: deciding when to log. Thread rule: one writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "train/event_file.h"

namespace tempo::train {

/// One training record. Losses, accuracy and norm are those of the step, null in the file where they are not finite; times and rates are means since the record before;
/// sequences and tokens are totals since step 1. Evaluations count in none of them.
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
  double data_ms = 0;  ///< of it, waiting for the data
  double sequences_per_s = 0;
  double tokens_per_s = 0;                ///< slots, padding included
  std::int64_t peak_allocated_bytes = 0;  ///< requested bytes, since the record before
  std::int64_t peak_reserved_bytes = 0;   ///< CUDA only; 0 on the CPU and then not written
  std::int64_t skipped_steps = 0;         ///< in all, because something was not finite
};

/// One evaluation of the weights after `step` on the whole validation set.
struct ValidationRecord {
  std::int64_t step = 0;
  double loss = 0;
  double token_loss = 0;       ///< key mlm_loss
  double sentence_loss = 0;    ///< key nsp_loss
  double token_accuracy = 0;   ///< key mlm_accuracy
  std::int64_t sequences = 0;  ///< in the set
  double seconds = 0;          ///< that the evaluation took
};

/// Cuts metrics.jsonl and the event files of a run back to records of steps up to `step`, and drops what a killed writer left
/// unfinished or the system lost. Throws c10::Error naming the file that cannot be written.
void cut_back(const std::filesystem::path& file, const std::filesystem::path& event_folder, std::int64_t step);

/// Whether metrics.jsonl has an evaluation of `step`.
bool has_evaluation(const std::filesystem::path& file, std::int64_t step);

/// Writes each record to metrics.jsonl and to an event file.
class MetricsWriter {
 public:
  /// `event_folder` gets the event file. Throws c10::Error when a file cannot be written.
  MetricsWriter(const std::filesystem::path& file, const std::filesystem::path& event_folder);

  /// Appends the record to both files and hands it to the system. Throws c10::Error naming the file when that fails (a full
  /// disk).
  void write(const TrainRecord& record);
  void write(const ValidationRecord& record);

  /// An evaluation that was cut off and is held after all: its line goes where it belongs, before the train line of its step.
  void insert(const ValidationRecord& record);

  /// Flushes both files to the disk. May be called by another thread than the writer's.
  void flush() const;

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  EventFile events_;
};

/// What a person wants to see of a record, most important first: "loss 3.7211  mlm 3.7173 ... peak 375.4 MiB".
std::string console_text(const TrainRecord& record);

/// An evaluation as one line: "step 100  held out  loss 3.9102  mlm 3.6521  nsp 0.2581  acc 0.291  (3.2 s)".
std::string console_text(const ValidationRecord& record);

/// "1.25 GiB", "312 MiB": bytes in binary units.
std::string bytes_text(std::int64_t bytes);

}  // namespace tempo::train
