#include "train/metrics.h"

#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "model/durable_file.h"

namespace tempo::train {
namespace {

using Line = nlohmann::ordered_json;

/// A scalar of TensorBoard and the key of metrics.jsonl that it repeats.
struct Tag {
  const char* tag;
  const char* key;
};

constexpr Tag kTrainTags[] = {{"train/loss", "loss"},
                              {"train/mlm_loss", "mlm_loss"},
                              {"train/nsp_loss", "nsp_loss"},
                              {"train/mlm_accuracy", "mlm_accuracy"},
                              {"train/lr", "lr"},
                              {"train/grad_norm", "grad_norm"},
                              {"train/sequences_per_s", "sequences_per_s"},
                              {"train/tokens_per_s", "tokens_per_s"},
                              {"train/step_ms", "step_ms"},
                              {"train/data_ms", "data_ms"},
                              {"train/skipped_steps", "skipped_steps"},
                              {"memory/peak_allocated_bytes", "peak_allocated_bytes"},
                              {"memory/peak_reserved_bytes", "peak_reserved_bytes"}};

constexpr Tag kValidationTags[] = {{"validation/loss", "loss"},
                                   {"validation/mlm_loss", "mlm_loss"},
                                   {"validation/nsp_loss", "nsp_loss"},
                                   {"validation/mlm_accuracy", "mlm_accuracy"}};

Line line_of(const TrainRecord& record) {
  Line line = {{"kind", "train"},
               {"step", record.step},
               {"epoch", record.epoch},
               {"loss", record.loss},
               {"mlm_loss", record.token_loss},
               {"nsp_loss", record.sentence_loss},
               {"mlm_accuracy", record.token_accuracy},
               {"lr", record.lr},
               {"grad_norm", record.grad_norm},
               {"sequences", record.sequences},
               {"tokens", record.tokens},
               {"real_tokens", record.real_tokens},
               {"step_ms", record.step_ms},
               {"data_ms", record.data_ms},
               {"sequences_per_s", record.sequences_per_s},
               {"rank_sequences_per_s", record.sequences_per_s},  // one rank so far
               {"tokens_per_s", record.tokens_per_s},
               {"peak_allocated_bytes", record.peak_allocated_bytes},
               {"skipped_steps", record.skipped_steps}};
  if (record.peak_reserved_bytes > 0) line["peak_reserved_bytes"] = record.peak_reserved_bytes;
  return line;
}

Line line_of(const ValidationRecord& record) {
  return {{"kind", "validation"},
          {"step", record.step},
          {"loss", record.loss},
          {"mlm_loss", record.token_loss},
          {"nsp_loss", record.sentence_loss},
          {"mlm_accuracy", record.token_accuracy},
          {"sequences", record.sequences},
          {"seconds", record.seconds}};
}

/// As JSON: what is not finite is null.
std::string text_of(const Line& line) { return line.dump() + "\n"; }

/// The scalars are read off the line, so that the two files cannot disagree.
template <std::size_t count>
std::vector<Scalar> scalars_of(const Line& line, const Tag (&tags)[count]) {
  std::vector<Scalar> scalars;
  for (const Tag& tag : tags) {
    const auto value = line.find(tag.key);
    if (value == line.end()) continue;
    // nlohmann's numbers keep what its text cannot say.
    scalars.push_back({tag.tag, value->template get<double>()});
  }
  return scalars;
}

/// What a metrics.jsonl holds of steps up to one.
struct Records {
  std::string text;
  bool has_evaluation = false;     ///< of that step
  std::int64_t line_of_fault = 0;  ///< from which on nothing counts; 0: none
};

Records read_until(const std::filesystem::path& file, std::int64_t step) {
  Records records;
  std::ifstream stream(file);
  std::int64_t number = 0;
  for (std::string text; std::getline(stream, text) && !stream.eof();) {  // a line without its end is unfinished
    ++number;
    const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step")) {
      records.line_of_fault = number;
      break;
    }
    const auto of_step = line["step"].get<std::int64_t>();
    if (of_step <= step) records.text += text + "\n";
    if (of_step == step && line.value("kind", "") == "validation") records.has_evaluation = true;
  }
  return records;
}

}  // namespace

void cut_back(const std::filesystem::path& file, const std::filesystem::path& event_folder, std::int64_t step) {
  const Records records = read_until(file, step);
  // The event of an evaluation may be there without its line, never the other way round (insert).
  cut_back_events(event_folder, step, records.has_evaluation ? "" : kValidationTags[0].tag);
  if (records.line_of_fault > 0) {
    spdlog::warn("{}:{}: is no record; it and what follows are dropped", file.string(), records.line_of_fault);
  }
  std::error_code ignored;
  if (std::filesystem::file_size(file, ignored) != records.text.size()) model::write_durable_text(file, records.text);
}

bool has_evaluation(const std::filesystem::path& file, std::int64_t step) {
  return read_until(file, step).has_evaluation;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file, const std::filesystem::path& event_folder)
    : path_(file), file_(model::open_for_append(file)), events_(event_folder) {}

void MetricsWriter::write(const TrainRecord& record) {
  const Line line = line_of(record);
  model::append_text(file_, path_, text_of(line));
  events_.write(record.step, scalars_of(line, kTrainTags));
}

void MetricsWriter::write(const ValidationRecord& record) {
  const Line line = line_of(record);
  model::append_text(file_, path_, text_of(line));
  events_.write(record.step, scalars_of(line, kValidationTags));
}

void MetricsWriter::insert(const ValidationRecord& record) {
  const Line line = line_of(record);
  events_.write(record.step, scalars_of(line, kValidationTags));
  std::ifstream stream(path_);
  std::string before;
  std::string last;
  for (std::string text; std::getline(stream, text);) {
    before += last;
    last = text + "\n";
  }
  const bool is_of_step = !last.empty() && Line::parse(last)["step"] == record.step;
  model::flush_to_disk(events_.path());  // the line must not outlive its event (cut_back)
  model::write_durable_text(path_, is_of_step ? before + text_of(line) + last : before + last + text_of(line));
  file_ = model::open_for_append(path_);  // the old one has lost its name
}

void MetricsWriter::flush() const {
  model::flush_to_disk(path_);
  model::flush_to_disk(events_.path());
  model::flush_to_disk(path_.parent_path());  // their names
}

std::string console_text(const TrainRecord& record) {
  return fmt::format(
             "loss {:.4f}  mlm {:.4f}  nsp {:.4f}  acc {:.3f}  lr {:.3g}  grad {:.3g}  {:.4g} seq/s  {:.4g} tok/s  "
             "peak {}",
             record.loss, record.token_loss, record.sentence_loss, record.token_accuracy, record.lr, record.grad_norm,
             record.sequences_per_s, record.tokens_per_s, bytes_text(record.peak_allocated_bytes)) +
         (record.skipped_steps > 0 ? fmt::format("  skipped {}", record.skipped_steps) : "");
}

std::string console_text(const ValidationRecord& record) {
  return fmt::format("step {}  held out  loss {:.4f}  mlm {:.4f}  nsp {:.4f}  acc {:.3f}  ({:.1f} s)", record.step,
                     record.loss, record.token_loss, record.sentence_loss, record.token_accuracy, record.seconds);
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= std::int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace tempo::train
