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
               {"sequences_per_s", record.sequences_per_s},
               {"rank_sequences_per_s", record.sequences_per_s},  // one rank so far
               {"tokens_per_s", record.tokens_per_s},
               {"peak_allocated_bytes", record.peak_allocated_bytes}};
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

/// The scalars are read off the line, so that the two files cannot disagree.
template <std::size_t count>
std::vector<Scalar> scalars_of(const Line& line, const Tag (&tags)[count]) {
  std::vector<Scalar> scalars;
  for (const Tag& tag : tags) {
    const auto value = line.find(tag.key);
    if (value != line.end()) scalars.push_back({tag.tag, value->template get<double>()});
  }
  return scalars;
}

}  // namespace

void cut_back(const std::filesystem::path& file, const std::filesystem::path& event_folder, std::int64_t step) {
  cut_back_events(event_folder, step);
  std::ifstream stream(file);
  std::string kept;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line) && !stream.eof();) {  // a line without its end is unfinished
    ++number;
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step")) {
      spdlog::warn("{}:{}: is no record; it and what follows are dropped", file.string(), number);
      break;
    }
    if (record["step"].get<std::int64_t>() <= step) kept += line + "\n";
  }
  std::error_code ignored;
  if (std::filesystem::file_size(file, ignored) != kept.size()) model::write_durable_text(file, kept);
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file, const std::filesystem::path& event_folder)
    : path_(file), file_(file, std::ios::app), events_(event_folder) {
  TORCH_CHECK(file_.good(), path_.string(), " cannot be written");
}

void MetricsWriter::write(const TrainRecord& record) {
  const Line line = line_of(record);
  append_line(line.dump());
  events_.write(record.step, scalars_of(line, kTrainTags));
}

void MetricsWriter::write(const ValidationRecord& record) {
  const Line line = line_of(record);
  append_line(line.dump());
  events_.write(record.step, scalars_of(line, kValidationTags));
}

void MetricsWriter::append_line(const std::string& line) {
  file_ << line << "\n" << std::flush;
  TORCH_CHECK(file_.good(), path_.string(), " cannot be written: is the disk full?");
}

std::string console_text(const TrainRecord& record) {
  return fmt::format(
      "loss {:.4f}  mlm {:.4f}  nsp {:.4f}  acc {:.3f}  lr {:.3g}  grad {:.3g}  {:.4g} seq/s  {:.4g} tok/s  peak {}",
      record.loss, record.token_loss, record.sentence_loss, record.token_accuracy, record.lr, record.grad_norm,
      record.sequences_per_s, record.tokens_per_s, bytes_text(record.peak_allocated_bytes));
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
