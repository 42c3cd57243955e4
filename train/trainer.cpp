#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <cmath>

#include "layers/ops/ops.h"
#include "train/evaluation.h"
#include "train/metrics.h"
#include "train/progress_display.h"
#include "train/run_data.h"
#include "train/run_dir.h"
#include "train/run_meter.h"
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

class Run {
 public:
  Run(const RunConfig& config, RunData& data, model::Model& model, c10::Device device)
      : config_(config),
        data_(data),
        model_(model),
        device_(device),
        directory_(config.run.dir, config.run.overwrite, resolved_yaml(config)),
        metrics_(directory_.metrics_file(), directory_.path()),
        optimizer_(config.optimizer, model.parameters()),
        step_(model, optimizer_, {config.train.grad_clip, config.train.seed}),
        length_(length_of(config, data)),
        meter_(device, length_) {
    const auto logger = spdlog::default_logger();
    logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(directory_.log_file().string()));
    logger->flush_on(spdlog::level::info);  // lines are rare, and who reads the file wants to see them
  }

  const RunDirectory& directory() const { return directory_; }
  const Optimizer& optimizer() const { return optimizer_; }

  void loop() {
    const Schedule schedule = config_.learning_rates();
    ProgressDisplay display("train");
    meter_.start();
    for (std::int64_t step = 1; step <= config_.train.steps; ++step) {
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
    }
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
  RunDirectory directory_;
  MetricsWriter metrics_;
  Optimizer optimizer_;
  TrainStep step_;
  RunLength length_;
  RunMeter meter_;
  TrainRecord last_record_;  ///< step 0: none yet
};

std::string evaluation_text(const RunConfig& config, const RunData& data) {
  const std::int64_t count = EvaluationPlan{config.train.evaluate_every, config.train.steps}.count();
  return fmt::format("{} held-out sequences every {} steps and at the end, {} times in all",
                     data.validation->num_examples(), config.train.evaluate_every, count);
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

void train(const RunConfig& config) {
  set_threads(config.train.threads);
  const c10::Device device = choose_device(config.train.device);
  RunDirectory::check(config.run.dir, config.run.overwrite);
  RunData data = open_data(config);
  const std::unique_ptr<model::Model> model = build_model(config, device);
  Run run(config, data, *model, device);
  spdlog::info("run {}", config.run.dir.string());
  spdlog::info("model: {} parameters ({} decayed, {} not) on {} with {} threads", model::count_parameters(config.model),
               run.optimizer().num_decayed(), run.optimizer().num_undecayed(), device.str(), at::get_num_threads());
  spdlog::info("data: {} sequences of {} tokens", data.training->num_examples(), data.training->sequence_length());
  if (data.validation) spdlog::info("evaluation: {}", evaluation_text(config, data));
  run.loop();
  if (config.run.export_model) {
    model::save_hugging_face(*model, run.directory().export_folder(), config.init.from.value_or(data.tokenizer_folder));
    spdlog::info("exported to {}", run.directory().export_folder().string());
  }
}

}  // namespace tempo::train
