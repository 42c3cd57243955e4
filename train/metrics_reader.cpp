#include "train/metrics_reader.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace tempo::train {
namespace {

using Json = nlohmann::json;

MetricsRecord numbers_of(const Json& object, std::int64_t line) {
  MetricsRecord record;
  record.line = line;
  for (const auto& [key, value] : object.items()) {
    if (key == "step") continue;
    if (value.is_number()) record.numbers[key] = value.get<double>();
    if (value.is_null())
      record.numbers[key] = std::numeric_limits<double>::quiet_NaN();  // written for what is not finite
  }
  return record;
}

void add_line(const Json& object, const std::string& place, std::int64_t line, MetricsRecords& records) {
  const auto kind = object.find("kind");
  TORCH_CHECK_VALUE(kind != object.end() && kind->is_string(), place, ": kind is missing or no text");
  const bool is_train = *kind == "train";
  if (!is_train && *kind != "validation") return;
  const auto step = object.find("step");
  TORCH_CHECK_VALUE(step != object.end() && step->is_number_integer() && step->get<std::int64_t>() > 0, place,
                    ": step is missing or no whole number above 0");
  auto& lines = is_train ? records.train : records.validation;
  const auto [first, is_new] = lines.emplace(step->get<std::int64_t>(), numbers_of(object, line));
  TORCH_CHECK_VALUE(is_new, place, ": a second ", kind->get<std::string>(), " record of step ", first->first,
                    "; the first is in line ", first->second.line);
}

}  // namespace

MetricsRecords read_metrics(const std::filesystem::path& file) {
  MetricsRecords records;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return records;
  std::ifstream stream(file);
  TORCH_CHECK_VALUE(std::filesystem::is_regular_file(file, ignored) && stream.good(), file.string(), " cannot be read");
  std::string text;
  for (std::int64_t line = 1; std::getline(stream, text); ++line) {
    const bool is_unfinished = stream.eof();  // no line end follows
    const std::string place = file.string() + ":" + std::to_string(line);
    const Json object = Json::parse(text, nullptr, false);
    if (is_unfinished && !object.is_object()) break;
    TORCH_CHECK_VALUE(object.is_object(), place, ": is no JSON object");
    add_line(object, place, line, records);
  }
  return records;
}

}  // namespace tempo::train
