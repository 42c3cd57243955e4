#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <iterator>

#include "layers/ops/ops.h"
#include "model/durable_file.h"
#include "train/checkpoint.h"
#include "train/device.h"
#include "train/evaluation.h"
#include "train/layer_presets.h"
#include "train/run_data.h"
#include "train/run_dir.h"
#include "train/run_loop.h"

namespace tempo::train {
namespace {

/// What is trained, and what moves it.
struct Learner {
  std::unique_ptr<model::Model> model;
  std::unique_ptr<Optimizer> optimizer;
};

/// As the run begins: from the seed, or from init.from.
Learner begin(const RunConfig& config, c10::Device device) {
  Learner learner;
  learner.model = model::make_model(config.model, device, config.layers);
  learner.optimizer = std::make_unique<Optimizer>(config.optimizer, learner.model->parameters());
  if (!config.init.from) {
    learner.model->parameters().initialise(config.train.seed);
    return learner;
  }
  const std::filesystem::path& folder = *config.init.from;
  const bool is_checkpoint = model::is_checkpoint(folder);
  TORCH_CHECK_VALUE(is_checkpoint || !config.init.keep_optimizer, "init.optimizer: keep, but ", folder.string(),
                    " is no checkpoint and holds none");
  const TrainState state = is_checkpoint ? verify_checkpoint(folder) : TrainState();
  log_load_report(model::load_weights(*learner.model, folder, config.train.seed), folder);
  // BERT's second phase: the moments and their number go on where the checkpoint's stopped.
  if (config.init.keep_optimizer) load_optimizer(folder, state, *learner.optimizer);
  return learner;
}

/// From here on log/rank-0.log gets what stderr shows.
void log_to(const RunDirectory& directory) {
  const auto logger = spdlog::default_logger();
  logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(directory.log_file().string()));
  logger->flush_on(spdlog::level::info);  // lines are rare, and who reads the file wants to see them
}

std::string evaluation_text(const RunConfig& config, const RunData& data) {
  const EvaluationPlan plan = evaluations_of(config);
  const std::int64_t count = plan.count() - plan.count_until(config.init.step);
  return fmt::format("{} held-out sequences every {} steps and at the end, {} times in all",
                     data.validation->num_examples(), config.train.evaluate_every, count);
}

/// Into a run directory; warns where the run began in another one, as its numbers may then differ in the last bits.
void write_environment(const RunDirectory& directory, const std::string& text) {
  const std::filesystem::path path = directory.path() / kEnvironmentFile;
  std::ifstream file(path);
  const std::string before(std::istreambuf_iterator<char>(file), {});
  if (before == text) return;
  if (!before.empty()) {
    spdlog::warn("this is not the environment in which the run began ({} has changed): it may not go on bit for bit",
                 kEnvironmentFile);
  }
  model::write_durable_text(path, text);
}

void run_to_end(const RunConfig& config, const RunParts& parts, const RunStart& start) {
  RunLoop loop(config, parts, start);
  const RunData& data = parts.data;
  const Optimizer& optimizer = parts.optimizer;
  spdlog::info("run {}", config.run.dir.string());
  spdlog::info("model: {} parameters ({} decayed, {} not) on {} with {} threads", model::count_parameters(config.model),
               optimizer.num_decayed(), optimizer.num_undecayed(), parts.device.str(), at::get_num_threads());
  spdlog::info("layers: {} ({})", config.layers_preset, text_of(config.layers));
  spdlog::info("data: {} sequences of {} tokens", data.training->num_examples(), data.training->sequence_length());
  if (data.validation) spdlog::info("evaluation: {}", evaluation_text(config, data));
  if (!loop.run()) {
    spdlog::info("stopped after step {} by {}; continue with: tempo train --resume {}", loop.steps_done(),
                 loop.stop_reason(), config.run.dir.string());
    return;
  }
  if (!config.run.export_model) return;
  const std::filesystem::path folder = parts.directory.export_folder();
  model::save_hugging_face(parts.model, folder, parts.tokenizer);
  spdlog::info("exported to {}", folder.string());
}

}  // namespace

void log_load_report(const model::LoadReport& report, const std::filesystem::path& folder) {
  const auto joined = [](const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
  };
  spdlog::info("weights from {}", folder.string());
  if (!report.initialised.empty()) {
    spdlog::warn("{} has no {} of these, which start from the seed: {}", folder.string(),
                 report.initialised.size() == 1 ? "value" : "values", joined(report.initialised));
  }
  if (!report.ignored.empty()) spdlog::info("not needed from there: {}", joined(report.ignored));
}

std::string check_run(const RunConfig& config) {
  open_device(config);
  RunDirectory::check(config.run.dir, config.run.overwrite);
  const RunData data = open_data(config);
  const data::Dataset& training = *data.training;
  if (config.init.from) begin(config, c10::DeviceType::CPU);
  const std::int64_t epoch_steps =
      (training.num_examples() + config.train.global_batch - 1) / config.train.global_batch;
  const std::string evaluation = data.validation ? "  eval    " + evaluation_text(config, data) + "\n" : "";
  return fmt::format(
      "The configuration is valid; nothing was written.\n"
      "  model   {} parameters, {} layers of {}\n"
      "  data    {} sequences of {} tokens, up to {} predictions each\n"
      "{}"
      "  run     {} steps of {} sequences in micro-batches of {}; an epoch is {} steps\n"
      "  into    {}\n",
      model::count_parameters(config.model), config.model.num_layers, config.model.hidden_size, training.num_examples(),
      training.sequence_length(), training.max_predictions(), evaluation, config.train.steps, config.train.global_batch,
      config.train.micro_batch, epoch_steps, config.run.dir.string());
}

void train(const RunConfig& config, const ProgramVersion& program) {
  const c10::Device device = open_device(config);
  RunDirectory::check(config.run.dir, config.run.overwrite);
  RunData data = open_data(config);
  const Learner learner = begin(config, device);
  RunDirectory directory(config.run.dir, config.run.overwrite, resolved_yaml(config));
  log_to(directory);
  write_environment(directory, environment_text(environment_facts(program, device)));
  TrainState state;
  state.step = config.init.step;
  run_to_end(config,
             {data, *learner.model, *learner.optimizer, device, directory,
              model::read_tokenizer_files(config.init.from.value_or(data.tokenizer_folder))},
             {state, /*is_saved=*/false, /*lacks_evaluation=*/false});
}

void resume(const RunConfig& config, const std::vector<ConfigChange>& changes, const ProgramVersion& program) {
  const c10::Device device = open_device(config);
  RunDirectory directory = RunDirectory::reopen(config.run.dir);
  std::vector<std::string> damages;
  const std::optional<IntactCheckpoint> found =
      newest_intact(directory.checkpoints(), [&](const std::filesystem::path& folder, const std::string& reason) {
        damages.push_back("checkpoint " + folder.filename().string() + " is damaged and left out: " + reason);
      });
  // Into the run's log only where the run goes on: otherwise nothing of it is touched.
  const auto tell_damages = [&] {
    for (const std::string& damage : damages) spdlog::warn(damage);
  };
  if (!found) tell_damages();
  TORCH_CHECK_VALUE(found, directory.checkpoints().string(), ": there is no checkpoint to continue from",
                    damages.empty() ? "" : " that is not damaged");
  const TrainState& state = found->state;
  TORCH_CHECK_VALUE(state.step <= config.train.steps, "train.steps: ", config.train.steps, " is less than the ",
                    state.step, " steps that the run has done");
  const bool is_exported = !config.run.export_model || std::filesystem::exists(directory.export_folder());
  // One that is due and not recorded: a signal cut it off, or nobody had asked for it then.
  const bool lacks_evaluation = state.step > config.init.step && evaluations_of(config).is_due(state.step) &&
                                !has_evaluation(directory.metrics_file(), state.step);
  if (state.step == config.train.steps && is_exported && !lacks_evaluation) {
    tell_damages();
    spdlog::info("run {} is finished: {} steps", config.run.dir.string(), state.step);
    return;
  }
  RunData data = open_data(config);
  TORCH_CHECK_VALUE(data.training->num_examples() == state.examples, "data.shards: hold ",
                    data.training->num_examples(), " sequences, but the run was trained on ", state.examples);
  const std::unique_ptr<model::Model> model = model::make_model(config.model, device, config.layers);
  Optimizer optimizer(config.optimizer, model->parameters());
  load_weights_as_saved(found->folder, *model);
  load_optimizer(found->folder, state, optimizer);
  log_to(directory);
  tell_damages();
  cut_back(directory.metrics_file(), directory.path(), state.step);
  directory.write_config(resolved_yaml(config));
  std::filesystem::remove_all(directory.export_folder());  // that of fewer steps: a run that is not finished has none
  spdlog::info("continues after step {} from {}", state.step, found->folder.string());
  for (const ConfigChange& change : changes) {
    spdlog::info("{}: {} replaces {}", change.key, change.after, change.before);
  }
  write_environment(directory, environment_text(environment_facts(program, device)));
  run_to_end(config, {data, *model, optimizer, device, directory, model::read_tokenizer_files(found->folder)},
             {state, /*is_saved=*/true, lacks_evaluation});
}

}  // namespace tempo::train
