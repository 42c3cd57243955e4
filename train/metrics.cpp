#include "train/metrics.h"

#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>

namespace tempo::train {
namespace {

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 86400) return fmt::format("{}d {:02}:{:02}", whole / 86400, whole / 3600 % 24, whole / 60 % 60);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& file) : path_(file), file_(file, std::ios::app) {
  TORCH_CHECK(file_.good(), path_.string(), " cannot be written");
}

void MetricsWriter::write(const TrainRecord& record) {
  nlohmann::ordered_json line = {{"kind", "train"},
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
  file_ << line.dump() << "\n" << std::flush;
  TORCH_CHECK(file_.good(), path_.string(), " cannot be written: is the disk full?");
}

std::string console_line(const TrainRecord& record, std::int64_t num_steps) {
  const double seconds_left = static_cast<double>(num_steps - record.step) * record.step_ms / 1000;
  return fmt::format(
      "step {:>{}}/{}  loss {:.4f}  mlm {:.4f}  nsp {:.4f}  acc {:.3f}  lr {:.3g}  grad {:.3g}  {:.4g} seq/s  {:.4g} "
      "tok/s  "
      "peak {}  left {}",
      record.step, std::to_string(num_steps).size(), num_steps, record.loss, record.token_loss, record.sentence_loss,
      record.token_accuracy, record.lr, record.grad_norm, record.sequences_per_s, record.tokens_per_s,
      bytes_text(record.peak_allocated_bytes), duration_text(seconds_left));
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= std::int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

}  // namespace tempo::train
