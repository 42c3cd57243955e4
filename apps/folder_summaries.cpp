#include "apps/folder_summaries.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "model/hf_weights.h"
#include "model/safetensors.h"
#include "train/checkpoint.h"
#include "train/config_fields.h"
#include "train/metrics_reader.h"

namespace tempo::apps {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kRunConfigFile = "config.yaml";

Json tensors_of(const model::SafetensorsReader& reader) {
  Json tensors = Json::object();
  for (const auto& [name, info] : reader.tensors()) tensors[name] = {{"shape", info.shape}, {"dtype", info.dtype}};
  return tensors;
}

std::int64_t count_parameters(const model::SafetensorsReader& reader) {
  std::int64_t parameters = 0;
  for (const auto& [name, info] : reader.tensors()) {
    if (info.dtype.front() != 'F' && info.dtype.front() != 'B') continue;  // floats; buffers are integers
    std::int64_t size = 1;
    for (const std::int64_t extent : info.shape) size *= extent;
    parameters += size;
  }
  return parameters;
}

/// Appends what a model and a checkpoint have in common.
void append_model(const fs::path& folder, Json& summary) {
  if (fs::exists(folder / model::kConfigFile)) {
    const model::ModelConfig config = model::read_hugging_face_config(folder);
    summary["layers"] = config.num_layers;
    summary["hidden_size"] = config.hidden_size;
    summary["vocab_size"] = config.vocab_size;
  }
  const model::SafetensorsReader reader(folder / model::kWeightsFile);
  summary["parameters"] = count_parameters(reader);
  summary["tensors"] = tensors_of(reader);
}

Json checkpoint_summary(const fs::path& folder) {
  const fs::path file = folder / model::kStateFile;
  std::ifstream stream(file);
  Json state = Json::parse(stream, nullptr, false);
  TORCH_CHECK_VALUE(state.is_object(), file.string(), ": is no JSON object");
  state.erase("sha256");  // for programs that verify, not for readers
  Json summary = {{"kind", "checkpoint"}, {"step", state.value("step", Json())}, {"state", state}};
  append_model(folder, summary);
  const fs::path optimizer = folder / train::kOptimizerFile;
  if (fs::exists(optimizer)) summary["optimizer_tensors"] = tensors_of(model::SafetensorsReader(optimizer));
  return summary;
}

/// The configuration of a run, for what is shown here. Keys that this version does not know are left out, and nothing
/// that the paths in it name has to be there still.
train::RunConfig run_config(const fs::path& file) {
  train::Draft draft;
  for (const train::WrittenValue& value : train::read_yaml_file(file)) {
    for (const train::Field& field : train::config_fields()) {
      if (field.key == value.key) field.read(draft, value);
    }
  }
  TORCH_CHECK_VALUE(draft.train.steps > 0, file.string(), ": train.steps is missing: not the configuration of a run");
  model::validate(draft.model);
  return draft;
}

/// The names of the finished checkpoints, by their step.
std::vector<std::string> checkpoint_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& checkpoint : train::list_checkpoints(folder)) {
    if (model::is_checkpoint(checkpoint)) names.insert(names.begin(), checkpoint.filename().string());
  }
  return names;
}

/// What the last record says: its step and its losses. null where there is none.
Json last_record(const std::map<std::int64_t, train::MetricsRecord>& records) {
  if (records.empty()) return nullptr;
  const auto& [step, record] = *records.rbegin();
  Json last = {{"step", step}};
  for (const char* key : {"loss", "mlm_loss", "nsp_loss", "mlm_accuracy"}) {
    const auto number = record.numbers.find(key);
    if (number != record.numbers.end()) last[key] = number->second;
  }
  return last;
}

/// The tensors that the run's model has, without any file.
Json model_tensors(const model::ModelConfig& config) {
  const auto model = model::make_model(config, c10::DeviceType::Meta);
  Json tensors = Json::object();
  for (const auto& [name, value] : model::named_weights(*model, model::VocabularyRows::kPadded)) {
    tensors[name] = {{"shape", value.sizes().vec()}, {"dtype", "F32"}};
  }
  return tensors;
}

Json run_summary(const fs::path& folder) {
  const train::RunConfig config = run_config(folder / kRunConfigFile);
  const train::MetricsRecords records = train::read_metrics(folder / "metrics.jsonl");
  const std::vector<std::string> checkpoints = checkpoint_names(folder / "checkpoints");
  const bool has_export = fs::exists(folder / "export");
  const std::int64_t done = records.last_step();
  const bool is_finished = done >= config.train.steps && (has_export || !config.run.export_model);
  const Json train_record = last_record(records.train);
  return {{"kind", "run"},
          {"state", is_finished ? "finished" : "unfinished"},
          {"steps_done", done},
          {"steps_planned", config.train.steps},
          {"loss", train_record.is_object() ? train_record.value("loss", Json()) : Json()},
          {"validation", last_record(records.validation)},
          {"checkpoints", checkpoints},
          {"newest_checkpoint", checkpoints.empty() ? Json() : Json(checkpoints.back())},
          {"export", has_export},
          {"parameters", model::count_parameters(config.model)},
          {"tensors", model_tensors(config.model)}};
}

}  // namespace

Json folder_summary(const fs::path& folder) {
  if (fs::exists(folder / kRunConfigFile)) return run_summary(folder);
  if (model::is_checkpoint(folder)) return checkpoint_summary(folder);
  TORCH_CHECK_VALUE(!fs::exists(folder / model::kStateFile), folder.string(), " holds ", model::kStateFile, " but no ",
                    model::kCompleteFile, ": a checkpoint that was not finished");
  TORCH_CHECK_VALUE(fs::exists(folder / model::kConfigFile), folder.string(), " holds neither ", model::kConfigFile,
                    " nor ", kRunConfigFile, ": no model, no checkpoint and no run");
  Json summary = {{"kind", "model"}};
  append_model(folder, summary);
  return summary;
}

}  // namespace tempo::apps
