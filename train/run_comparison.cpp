#include "train/run_comparison.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "train/config_reader.h"
#include "train/environment.h"
#include "train/metrics_reader.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

/// Keys with their values as text, in the order of their file.
using Texts = std::vector<std::pair<std::string, std::string>>;

// What is computed. Times, rates and peaks are measured and differ from run to run.
constexpr const char* kTrainKeys[] = {"loss",      "mlm_loss",  "nsp_loss", "mlm_accuracy", "lr",
                                      "grad_norm", "sequences", "tokens",   "real_tokens"};
constexpr const char* kValidationKeys[] = {"loss", "mlm_loss", "nsp_loss", "mlm_accuracy"};

std::string value_text(const WrittenValue& value) {
  switch (value.kind) {
    case WrittenValue::Kind::kEmpty:
      return "(empty)";
    case WrittenValue::Kind::kMap:
      return "{}";
    case WrittenValue::Kind::kScalar:
      return value.texts.front();
    case WrittenValue::Kind::kList:
      break;
  }
  return "[" + c10::Join(", ", value.texts) + "]";
}

Texts config_texts(const fs::path& run) {
  const fs::path file = run / "config.yaml";
  std::error_code ignored;
  TORCH_CHECK_VALUE(fs::is_regular_file(file, ignored), run.string(), " is not a run directory: it ",
                    fs::exists(run, ignored) ? "holds no config.yaml" : "does not exist");
  Texts texts;
  for (const WrittenValue& value : read_yaml_file(file)) {
    if (value.key == "run.dir" || value.key == "run.overwrite") continue;
    texts.emplace_back(value.key, value_text(value));
  }
  return texts;
}

/// Not set where there is no such file.
std::optional<Texts> environment_texts(const fs::path& run) {
  const fs::path file = run / kEnvironmentFile;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  std::ifstream stream(file);
  const auto object = nlohmann::ordered_json::parse(stream, nullptr, false);
  TORCH_CHECK_VALUE(object.is_object(), file.string(), ": is no JSON object");
  Texts texts;
  for (const auto& [key, value] : object.items()) {
    texts.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return texts;
}

std::optional<std::string> find(const Texts& texts, const std::string& key) {
  for (const auto& [name, text] : texts) {
    if (name == key) return text;
  }
  return std::nullopt;
}

std::vector<TextDifference> text_differences(const Texts& a, const Texts& b) {
  std::vector<TextDifference> differences;
  for (const auto& [key, text] : a) {
    std::optional<std::string> other = find(b, key);
    if (other != text) differences.push_back({key, text, std::move(other)});
  }
  for (const auto& [key, text] : b) {
    if (!find(a, key)) differences.push_back({key, std::nullopt, text});
  }
  return differences;
}

std::optional<double> number(const MetricsRecord& record, const char* key) {
  const auto found = record.numbers.find(key);
  return found == record.numbers.end() ? std::nullopt : std::optional<double>(found->second);
}

bool is_equal(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return *a == *b || (std::isnan(*a) && std::isnan(*b));
}

/// The first key whose numbers differ; `prefix` goes before its name.
template <std::size_t count>
std::optional<NumberDifference> record_difference(const MetricsRecord& a, const MetricsRecord& b,
                                                  const char* const (&keys)[count], const std::string& prefix) {
  for (const char* key : keys) {
    const auto number_a = number(a, key);
    const auto number_b = number(b, key);
    if (!is_equal(number_a, number_b)) return NumberDifference{0, prefix + key, number_a, number_b};
  }
  return std::nullopt;
}

const MetricsRecord* record_at(const std::map<std::int64_t, MetricsRecord>& records, std::int64_t step) {
  const auto found = records.find(step);
  return found == records.end() ? nullptr : &found->second;
}

void compare_steps(const MetricsRecords& a, const MetricsRecords& b, RunComparison& comparison) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : a.train) steps.push_back(entry.first);
  for (const auto& entry : a.validation) steps.push_back(entry.first);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  for (const std::int64_t step : steps) {
    const MetricsRecord* train[] = {record_at(a.train, step), record_at(b.train, step)};
    const MetricsRecord* validation[] = {record_at(a.validation, step), record_at(b.validation, step)};
    const bool has_train = train[0] != nullptr && train[1] != nullptr;
    const bool has_validation = validation[0] != nullptr && validation[1] != nullptr;
    if (!has_train && !has_validation) continue;
    ++comparison.steps_compared;
    if (comparison.first) continue;
    // The train record comes first: its loss is of the weights before the step, the evaluation of those after it.
    if (has_train) comparison.first = record_difference(*train[0], *train[1], kTrainKeys, "");
    if (has_validation && !comparison.first) {
      comparison.first = record_difference(*validation[0], *validation[1], kValidationKeys, "validation.");
    }
    if (comparison.first) {
      comparison.first->step = step;
    } else {
      ++comparison.steps_agreeing;
    }
  }
}

}  // namespace

std::optional<double> NumberDifference::relative() const {
  if (!a || !b || !std::isfinite(*a) || !std::isfinite(*b)) return std::nullopt;
  return std::abs(*a - *b) / std::max(std::abs(*a), std::abs(*b));  // they differ, so one of them is not 0
}

RunComparison compare_runs(const fs::path& a, const fs::path& b) {
  RunComparison comparison;
  const Texts config_a = config_texts(a);
  comparison.config = text_differences(config_a, config_texts(b));
  const std::optional<Texts> environment_a = environment_texts(a);
  const std::optional<Texts> environment_b = environment_texts(b);
  comparison.a_has_environment = environment_a.has_value();
  comparison.b_has_environment = environment_b.has_value();
  if (environment_a && environment_b) comparison.environment = text_differences(*environment_a, *environment_b);
  const MetricsRecords metrics_a = read_metrics(a / "metrics.jsonl");
  const MetricsRecords metrics_b = read_metrics(b / "metrics.jsonl");
  comparison.a_last_step = metrics_a.last_step();
  comparison.b_last_step = metrics_b.last_step();
  compare_steps(metrics_a, metrics_b, comparison);
  return comparison;
}

}  // namespace tempo::train
