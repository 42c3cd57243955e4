#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "layers/ops/ops.h"
#include "model/durable_file.h"
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/metrics.h"
#include "train/progress_display.h"
#include "train/run_data.h"
#include "train/run_dir.h"
#include "train/run_meter.h"
#include "train/stop_request.h"
#include "train/train_step.h"

namespace tempo::train {
namespace {

c10::Device choose_device(const std::string& name) {
  if (name == "cpu") return c10::DeviceType::CPU;
  const bool has_kernels = layers::has_cuda_kernels();
  if (has_kernels && at::hasCUDA()) return c10::Device(c10::DeviceType::CUDA, 0);
  TORCH_CHECK_VALUE(
      name != "cuda" || has_kernels,
      "train.device: cuda: this program was built without CUDA kernels (TEMPO_CUDA=ON builds them); use cpu or auto");
  TORCH_CHECK_VALUE(name != "cuda",
                    "train.device: cuda: no GPU was found that CUDA can use; use cpu or auto, or look at nvidia-smi");
  return c10::DeviceType::CPU;
}

void set_threads(std::int64_t threads) {
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

std::unique_ptr<model::Model> build_model(const RunConfig& config, c10::Device device) {
  std::unique_ptr<model::Model> model = model::make_model(config.model, device);
  if (config.init.from) {
    if (model::is_checkpoint(*config.init.from)) verify_checkpoint(*config.init.from);
    log_load_report(model::load_weights(*model, *config.init.from, config.train.seed), *config.init.from);
  } else {
    model->parameters().initialise(config.train.seed);
  }
  return model;
}

/// Seconds that writing the exported model will take, roughly: it is flushed to the disk, which a plain one takes at this rate.
double export_seconds(const RunConfig& config) {
  constexpr double kBytesPerSecond = 300e6;
  if (!config.run.export_model) return 0;
  return static_cast<double>(model::count_parameters(config.model)) * sizeof(float) / kBytesPerSecond;
}

RunLength length_of(const RunConfig& config, const RunData& data) {
  return {config.train.steps,
          {config.train.evaluate_every, config.train.steps},
          data.validation ? data.validation->num_examples() : 0,
          export_seconds(config)};
}

/// From here on log/rank-0.log gets what stderr shows.
void log_to(const RunDirectory& directory) {
  const auto logger = spdlog::default_logger();
  logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(directory.log_file().string()));
  logger->flush_on(spdlog::level::info);  // lines are rare, and who reads the file wants to see them
}

class Run {
 public:
  /// From its first step, or after `state.step` steps with the model and the optimizer as they were then.
  Run(const RunConfig& config, RunData& data, model::Model& model, Optimizer& optimizer, c10::Device device,
      RunDirectory& directory, const TrainState& state, const model::TokenizerFiles& tokenizer)
      : config_(config),
        data_(data),
        model_(model),
        device_(device),
        state_(state),
        metrics_(directory.metrics_file(), directory.path()),
        step_(model, optimizer, {config.train.grad_clip, config.train.seed}),
        saver_(directory.checkpoints(), config.run.keep, model, optimizer, tokenizer),
        length_(length_of(config, data)),
        meter_(device, length_) {
    // What the run goes on from is saved already.
    if (state.examples > 0) saved_step_ = state.step;
    state_.examples = data.training->num_examples();
    meter_.resume(state.step, state.sequences, state.tokens, state.real_tokens);
  }

  /// Trains to the last step, or until a signal asks for the end. Returns the steps that are done; they are saved.
  std::int64_t loop() {
    const Schedule schedule = config_.learning_rates();
    ProgressDisplay display("train");
    meter_.start();
    for (std::int64_t step = state_.step + 1; step <= config_.train.steps && !StopRequest::requested(); ++step) {
      const data::GlobalBatch global = data_.training->global_batch_at(step, config_.train.global_batch);
      const StepPlan plan{step, schedule.lr(step), data_.training->count_labels(global), global.count};
      const StepResult result = run_step(plan, global, display);
      meter_.end_step();
      const bool is_logged = step == config_.train.steps || step == 1 || step % config_.run.log_every == 0;
      if (is_logged) last_record_ = measured(plan, global, result);
      // Written before the train line, so that the last line of the metrics is a train line.
      if (length_.evaluations.is_due(step) && is_finite()) hold_evaluation(step, display);
      if (is_logged) metrics_.write(last_record_);
      show(display, step);
      TORCH_CHECK(is_finite(), "step ", step, ": the loss is ", last_record_.loss, " and the gradient norm ",
                  last_record_.grad_norm, "; the run stops. A lower optimizer.lr or a longer warm-up often helps.");
      state_.step = step;
      saver_.check();
      const bool is_end = step == config_.train.steps || StopRequest::requested() != nullptr;
      if (is_end || (config_.run.checkpoint_every > 0 && step % config_.run.checkpoint_every == 0)) save();
    }
    if (saved_step_ != state_.step) save();
    saver_.finish();
    return state_.step;
  }

 private:
  StepResult run_step(const StepPlan& plan, const data::GlobalBatch& global, ProgressDisplay& display) {
    std::int64_t offset = 0;
    return step_.run(plan, [&]() -> std::optional<data::Batch> {
      // Steps of large batches take minutes. The first is not shown in parts: what is shown first is a record.
      if (last_record_.step > 0) {
        show(display, plan.step - 1, static_cast<double>(offset) / static_cast<double>(global.count));
      }
      if (offset >= global.count) return std::nullopt;
      const std::int64_t count = std::min(config_.train.micro_batch, global.count - offset);
      data::Batch batch = data_.training->load(global, offset, count, device_);
      offset += count;
      meter_.count(batch);
      return batch;
    });
  }

  void hold_evaluation(std::int64_t step, ProgressDisplay& display) {
    meter_.begin_evaluation();
    ValidationRecord line = evaluate(model_, *data_.validation, config_.train.micro_batch, [&](std::int64_t done) {
      show(display, step, 0, fmt::format("  held out {}/{}", done, data_.validation->num_examples()));
    });
    line.step = step;
    metrics_.write(line);
    spdlog::info(console_text(line));
    meter_.end_evaluation();
  }

  void save() {
    state_.sequences = meter_.sequences();
    state_.tokens = meter_.tokens();
    state_.real_tokens = meter_.real_tokens();
    saver_.save(state_);
    saved_step_ = state_.step;
  }

  TrainRecord measured(const StepPlan& plan, const data::GlobalBatch& global, const StepResult& result) {
    TrainRecord line;
    line.step = plan.step;
    line.epoch = global.epoch;
    line.loss = result.loss.item<double>();
    line.token_loss = result.token_loss.item<double>();
    line.sentence_loss = result.sentence_loss.item<double>();
    line.token_accuracy = static_cast<double>(result.num_correct.item<std::int64_t>()) /
                          static_cast<double>(std::max<std::int64_t>(plan.num_labels, 1));
    line.lr = plan.lr;
    line.grad_norm = result.grad_norm.item<double>();
    meter_.measure(line);
    return line;
  }

  /// The steps done, what goes on besides, and the last record; with its step where that is an earlier one. `part` is the share of
  /// the next step that is done.
  void show(ProgressDisplay& display, std::int64_t step, double part = 0, const std::string& besides = "") const {
    const std::int64_t steps = config_.train.steps;
    std::string text = fmt::format("step {:>{}}/{}{}", step, std::to_string(steps).size(), steps, besides);
    if (last_record_.step > 0) {
      text += last_record_.step < step ? fmt::format("  at {}: ", last_record_.step) : "  ";
      text += console_text(last_record_);
    }
    display.update((static_cast<double>(step) + part) / static_cast<double>(steps), text, meter_.seconds_left(part));
  }

  bool is_finite() const { return std::isfinite(last_record_.loss) && std::isfinite(last_record_.grad_norm); }

  const RunConfig& config_;
  RunData& data_;
  model::Model& model_;
  c10::Device device_;
  TrainState state_;
  MetricsWriter metrics_;
  TrainStep step_;
  CheckpointSaver saver_;
  std::int64_t saved_step_ = -1;
  RunLength length_;
  RunMeter meter_;
  TrainRecord last_record_;  ///< step 0: none yet
};

std::string evaluation_text(const RunConfig& config, const RunData& data) {
  const std::int64_t count = EvaluationPlan{config.train.evaluate_every, config.train.steps}.count();
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

void run_to_end(const RunConfig& config, RunData& data, model::Model& model, Optimizer& optimizer, c10::Device device,
                RunDirectory& directory, const TrainState& state, const model::TokenizerFiles& tokenizer) {
  Run run(config, data, model, optimizer, device, directory, state, tokenizer);
  spdlog::info("run {}", config.run.dir.string());
  spdlog::info("model: {} parameters ({} decayed, {} not) on {} with {} threads", model::count_parameters(config.model),
               optimizer.num_decayed(), optimizer.num_undecayed(), device.str(), at::get_num_threads());
  spdlog::info("data: {} sequences of {} tokens", data.training->num_examples(), data.training->sequence_length());
  if (data.validation) spdlog::info("evaluation: {}", evaluation_text(config, data));
  const std::int64_t steps = run.loop();
  if (steps < config.train.steps) {
    spdlog::info("stopped after step {} by {}; continue with: tempo train --resume {}", steps, StopRequest::requested(),
                 config.run.dir.string());
    return;
  }
  if (!config.run.export_model) return;
  model::save_hugging_face(model, directory.export_folder(), tokenizer);
  spdlog::info("exported to {}", directory.export_folder().string());
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
  set_threads(config.train.threads);
  choose_device(config.train.device);
  RunDirectory::check(config.run.dir, config.run.overwrite);
  const RunData data = open_data(config);
  const data::Dataset& training = *data.training;
  if (config.init.from) build_model(config, c10::DeviceType::CPU);
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
  const StopRequest signals;
  set_threads(config.train.threads);
  const c10::Device device = choose_device(config.train.device);
  RunDirectory::check(config.run.dir, config.run.overwrite);
  RunData data = open_data(config);
  const std::unique_ptr<model::Model> model = build_model(config, device);
  Optimizer optimizer(config.optimizer, model->parameters());
  RunDirectory directory(config.run.dir, config.run.overwrite, resolved_yaml(config));
  log_to(directory);
  write_environment(directory, environment_text(environment_facts(program, device)));
  run_to_end(config, data, *model, optimizer, device, directory, {},
             model::read_tokenizer_files(config.init.from.value_or(data.tokenizer_folder)));
}

void resume(const RunConfig& config, const std::vector<ConfigChange>& changes, const ProgramVersion& program) {
  const StopRequest signals;
  set_threads(config.train.threads);
  const c10::Device device = choose_device(config.train.device);
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
  if (state.step == config.train.steps && is_exported) {
    tell_damages();
    spdlog::info("run {} is finished: {} steps", config.run.dir.string(), state.step);
    return;
  }
  RunData data = open_data(config);
  TORCH_CHECK_VALUE(data.training->num_examples() == state.examples, "data.shards: hold ",
                    data.training->num_examples(), " sequences, but the run was trained on ", state.examples);
  const std::unique_ptr<model::Model> model = model::make_model(config.model, device);
  Optimizer optimizer(config.optimizer, model->parameters());
  load_checkpoint(found->folder, state, *model, optimizer);
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
  run_to_end(config, data, *model, optimizer, device, directory, state, model::read_tokenizer_files(found->folder));
}

}  // namespace tempo::train
