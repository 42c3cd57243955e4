#include "train/run_config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "data/examples.h"
#include "train/config_fields.h"
#include "train/config_reader.h"
#include "train/layer_presets.h"
#include "train/written_keys.h"

namespace tempo::train {
namespace {

constexpr const char* kSequenceLength = "data.sequence_length";
/// The keys that model.size stands for.
constexpr const char* kSizeKeys[] = {"model.hidden_size", "model.num_layers", "model.num_heads",
                                     "model.intermediate_size"};
/// A product of ratio and steps this near to a whole number is that number: 0.29 x 100 is 29.
constexpr double kWholeTolerance = 1e-9;

const Field& field_of(const std::string& key) {
  const auto& fields = config_fields();
  return *std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.key == key; });
}

void require_keys(const WrittenKeys& written, Command command) {
  std::string missing;
  for (const Field& field : config_fields()) {
    const auto& commands = field.required_by;
    if (std::find(commands.begin(), commands.end(), command) == commands.end() || written.has(field.key)) continue;
    missing += (missing.empty() ? "" : "; ") + field.key + " is missing, write for example " + field.example;
  }
  if (!missing.empty()) refuse(written.file(), missing);
}

/// The architecture before single keys change it.
model::ModelConfig base_model(const Draft& draft, const WrittenKeys& written) {
  if (draft.init.from) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(*draft.init.from, ignored)) {
      refuse(written.place("init.from"), "no such folder: " + draft.init.from->string());
    }
    return model::read_hugging_face_config(*draft.init.from);
  }
  if (!draft.model_size.empty()) return model::named_size(draft.model.family, draft.model_size);
  return {};
}

bool agree(const Field& field, const Draft& one, const Draft& other) {
  // Two names of one function.
  if (field.key == "model.hidden_act") return one.model.activation() == other.model.activation();
  return field.print(one) == field.print(other);
}

void refuse_clash(const std::string& place, const Field& field, const Draft& asked, const Draft& weights) {
  refuse(place, field.key + " " + field.print(asked) + ", but the weights were made with " + field.hugging_face_key +
                    " " + field.print(weights) + " (" + (*weights.init.from / "config.json").string() + ")");
}

/// model.size beside init.from must agree with it, and must have an effect on some key.
void check_size(const Draft& draft, const Draft& base, const WrittenKeys& written) {
  if (!written.has("model.size")) return;
  Draft named = draft;
  named.model = model::named_size(draft.model.family, draft.model_size);
  bool has_effect = false;
  for (const char* key : kSizeKeys) {
    if (written.has(key)) continue;
    has_effect = true;
    const Field& field = field_of(key);
    if (draft.init.from && !agree(field, named, base)) refuse_clash(written.place("model.size"), field, named, base);
  }
  if (!has_effect) {
    refuse(written.place("model.size"),
           "has no effect, because hidden_size, num_layers, num_heads and intermediate_size are all given");
  }
}

void resolve_model(Draft& draft, const WrittenKeys& written) {
  Draft base = draft;
  base.model = base_model(draft, written);
  check_size(draft, base, written);
  Draft resolved = base;
  for (const Field& field : config_fields()) {
    const WrittenValue* value = written.find(field.key);
    if (value == nullptr || section_of(field.key) != "model") continue;
    field.read(resolved, *value);
    const bool must_agree = draft.init.from && !field.hugging_face_key.empty();
    if (must_agree && !agree(field, resolved, base)) refuse_clash(value->place, field, resolved, base);
  }
  draft.model = resolved.model;
  const auto fault = model::find_fault(draft.model);
  if (!fault) return;
  const bool is_by_hidden_size = fault->key == "num_heads" && !written.has("model.num_heads");
  refuse(written.place(is_by_hidden_size ? "model.hidden_size" : "model." + fault->key), fault->text);
}

void resolve_warmup(Draft& draft, const WrittenKeys& written) {
  if (!written.has(kWarmupRatio)) return;
  const double steps = draft.warmup_ratio * static_cast<double>(draft.train.steps);
  const double whole = std::round(steps);
  draft.schedule.warmup_steps = std::abs(steps - whole) <= kWholeTolerance * whole ? whole : steps;
}

void check_predictions(const RunConfig& config, const WrittenKeys& written) {
  const std::int64_t length = config.data.sequence_length;
  if (length == 0 || config.data.max_predictions <= length) return;
  refuse(written.place("data.max_predictions"),
         std::to_string(config.data.max_predictions) + " is more than data.sequence_length " + std::to_string(length));
}

void resolve_evaluation(Draft& draft, const WrittenKeys& written) {
  constexpr const char* kEvery = "train.evaluate_every";
  constexpr std::int64_t kDefaultEvaluations = 20;  // points enough for a curve
  if (draft.data.validation.empty()) {
    if (written.has(kEvery)) refuse(written.place(kEvery), "has no effect, because data.validation is not set");
  } else if (!written.has(kEvery)) {
    draft.train.evaluate_every = std::max<std::int64_t>(draft.train.steps / kDefaultEvaluations, 1);
  }
}

void check_data(const RunConfig& config, const WrittenKeys& written) {
  const std::int64_t length = config.data.sequence_length;
  if (length > config.model.max_positions) {
    refuse(written.place("data.sequence_length"),
           std::to_string(length) + " is more than model.max_positions " + std::to_string(config.model.max_positions));
  }
  check_predictions(config, written);
}

void check_train(const RunConfig& config, const WrittenKeys& written) {
  if (config.train.micro_batch > config.train.global_batch) {
    refuse(written.place("train.micro_batch"), std::to_string(config.train.micro_batch) +
                                                   " is more than train.global_batch " +
                                                   std::to_string(config.train.global_batch));
  }
}

void check_schedule(const RunConfig& config, const WrittenKeys& written) {
  const ScheduleConfig& schedule = config.schedule;
  if (schedule.warmup_steps > static_cast<double>(config.train.steps)) {
    refuse(written.place(kWarmupSteps), model::number_text(schedule.warmup_steps) + " is more than train.steps " +
                                            std::to_string(config.train.steps));
  }
  if (schedule.min_lr > config.optimizer.lr) {
    refuse(written.place("schedule.min_lr"), model::number_text(schedule.min_lr) + " is more than optimizer.lr " +
                                                 model::number_text(config.optimizer.lr));
  }
  if (schedule.kind == ScheduleKind::kConstant && schedule.min_lr > 0) {
    refuse(written.place("schedule.min_lr"), "has no effect, because schedule.name constant does not decay");
  }
}

/// The preset's options, and single keys over them.
void resolve_layers(Draft& draft, const WrittenKeys& written) {
  Draft resolved = draft;
  resolved.layers = layer_preset(draft.layers_preset);
  for (const Field& field : config_fields()) {
    const WrittenValue* value = written.find(field.key);
    if (value != nullptr && section_of(field.key) == "layers") field.read(resolved, *value);
  }
  layers::LayerOptions& options = resolved.layers;
  if (options.recompute == layers::RecomputeOption::kFfn) {
    // GELU's output is made again with what leads to it; another setting of it would do nothing.
    if (written.is_meant("layers.gelu") && options.gelu != layers::GeluOption::kRecompute)
      refuse(written.place("layers.gelu"), "has no effect, because layers.recompute ffn makes GELU's output again");
    options.gelu = layers::GeluOption::kRecompute;
  }
  if (written.is_meant("layers.masks") && !uses_masks(options))
    refuse(written.place("layers.masks"), "has no effect, because neither layers.gelu nor layers.dropout is tempo");
  draft.layers = options;
}

void check_init(const RunConfig& config, const WrittenKeys& written) {
  for (const char* key : {"init.optimizer", "init.step"}) {
    if (!config.init.from && written.has(key))
      refuse(written.place(key), "has no effect, because init.from is not set");
  }
  if (config.init.step >= config.train.steps) {
    refuse(written.place("init.step"),
           std::to_string(config.init.step) + " is not less than train.steps " + std::to_string(config.train.steps));
  }
}

/// A value of the resolved text; a list as [a, b].
std::string on_one_line(std::string text) {
  constexpr std::string_view kItem = "\n    - ";
  if (text.compare(0, kItem.size(), kItem) != 0) return text;
  text.replace(0, kItem.size(), "[");
  for (std::size_t at = text.find(kItem); at != std::string::npos; at = text.find(kItem))
    text.replace(at, kItem.size(), ", ");
  return text + "]";
}

/// What decides the weights, or which examples come next: a run that goes on cannot change it.
bool is_fixed(const std::string& key) {
  static const std::set<std::string> keys = {"data.shards",  "data.sequence_length", "data.max_predictions",
                                             "data.shuffle", "train.precision",      "train.global_batch",
                                             "train.seed",   "optimizer.name",       "run.dir"};
  return section_of(key) == "model" || section_of(key) == "init" || keys.count(key) != 0;
}

Draft read_fields(const WrittenKeys& written) {
  Draft draft;
  for (const Field& field : config_fields()) {
    const WrittenValue* value = written.find(field.key);
    if (value != nullptr) field.read(draft, *value);
  }
  return draft;
}

void check_prepare(const RunConfig& config, const WrittenKeys& written) {
  const std::int64_t length = config.data.sequence_length;
  if (length < data::kMinSequenceLength) {
    refuse(written.place(kSequenceLength), std::to_string(length) + " is too short for a pair of segments; at least " +
                                               std::to_string(data::kMinSequenceLength) + " tokens");
  }
  check_predictions(config, written);
  const double share = config.prepare.validation;
  if (share > 0 && share < data::kMinHeldOutShare) {
    refuse(written.place("prepare.validation"),
           model::number_text(share) + " is too small; 0 or at least " + model::number_text(data::kMinHeldOutShare));
  }
}

/// Fills in what other keys decide, and checks the rules between keys.
void complete(Draft& draft, const WrittenKeys& written) {
  resolve_layers(draft, written);
  resolve_warmup(draft, written);
  resolve_evaluation(draft, written);
  if (!written.has("train.micro_batch")) {
    draft.train.micro_batch = std::min(draft.train.global_batch, kLargestDefaultMicroBatch);
  }
  check_data(draft, written);
  check_train(draft, written);
  check_schedule(draft, written);
  check_init(draft, written);
}

}  // namespace

Schedule RunConfig::learning_rates() const {
  return {schedule.kind, optimizer.lr, schedule.min_lr, schedule.warmup_steps, train.steps};
}

RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const WrittenKeys written(file, overrides);
  Draft draft = read_fields(written);
  require_keys(written, Command::kTrain);
  resolve_model(draft, written);
  complete(draft, written);
  return draft;
}

RunConfig load_resumed_config(const std::filesystem::path& run_dir, const std::vector<std::string>& overrides,
                              std::vector<ConfigChange>& changes) {
  const std::filesystem::path file = run_dir / "config.yaml";
  const auto load = [&](const std::vector<std::string>& given) {
    const WrittenKeys written(file, given);
    Draft draft = read_fields(written);
    require_keys(written, Command::kTrain);
    // A resolved configuration holds the whole architecture: the folder that init.from names is not needed any more.
    const std::optional<std::filesystem::path> from = std::exchange(draft.init.from, std::nullopt);
    resolve_model(draft, written);
    draft.init.from = from;
    draft.run.overwrite = false;
    complete(draft, written);
    return draft;
  };
  const Draft before = load({});
  Draft after = load(overrides);
  changes.clear();
  for (const Field& field : config_fields()) {
    if (field.print == nullptr || field.print(before) == field.print(after)) continue;
    TORCH_CHECK_VALUE(!is_fixed(field.key), "override ", field.key,
                      ": cannot be changed in a run that goes on; it has ", on_one_line(field.print(before)));
    changes.push_back({field.key, on_one_line(field.print(before)), on_one_line(field.print(after))});
  }
  after.run.dir = std::filesystem::absolute(run_dir).lexically_normal();
  if (!after.run.dir.has_filename()) after.run.dir = after.run.dir.parent_path();
  return after;
}

RunConfig load_bench_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  constexpr std::int64_t kMicroBatch = 8;
  const WrittenKeys written(file, overrides);
  Draft draft = read_fields(written);
  resolve_model(draft, written);
  resolve_layers(draft, written);
  if (!written.has("train.micro_batch")) draft.train.micro_batch = kMicroBatch;
  if (draft.data.sequence_length == 0) draft.data.sequence_length = draft.model.max_positions;
  check_data(draft, written);
  return draft;
}

RunConfig load_prepare_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const WrittenKeys written(file, overrides);
  Draft draft = read_fields(written);
  require_keys(written, Command::kPrepare);
  if (!written.has(kSequenceLength)) {
    refuse(written.file(),
           std::string(kSequenceLength) + " is missing, write for example data: {sequence_length: 128}");
  }
  check_prepare(draft, written);
  if (draft.data.max_predictions == 0)
    draft.data.max_predictions = data::default_max_predictions(draft.data.sequence_length);
  return draft;
}

std::string resolved_yaml(const RunConfig& config) {
  const Draft draft{config, {}, 0};
  std::string text;
  for (const Section& section : config_sections()) {
    std::string lines;
    for (const Field& field : config_fields()) {
      if (section_of(field.key) != section.name || field.print == nullptr) continue;
      const std::string value = field.print(draft);
      if (value.empty()) continue;
      lines +=
          "  " + field.key.substr(section.name.size() + 1) + ":" + (value.front() == '\n' ? "" : " ") + value + "\n";
    }
    if (!lines.empty()) text += section.name + ":\n" + lines;
  }
  return text;
}

}  // namespace tempo::train
