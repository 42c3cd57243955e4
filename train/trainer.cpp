#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>

#include "data/dataset.h"
#include "layers/ops/ops.h"
#include "train/memory_tracker.h"
#include "train/metrics.h"
#include "train/run_dir.h"
#include "train/train_step.h"

namespace tempo::train {
namespace {

constexpr auto kCheckReport = std::chrono::seconds(10);  // how often a long check of the shards says where it is

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

std::unique_ptr<data::Dataset> open_dataset(const RunConfig& config) {
  data::DatasetOptions options;
  options.shards = expand_shards(config.data);
  options.sequence_length = config.data.sequence_length;
  options.max_predictions = config.data.max_predictions;
  options.limits = {config.model.vocab_size, config.model.type_vocab_size};
  options.shuffle = config.data.shuffle;
  options.seed = config.train.seed;
  options.on_checked = [last = std::chrono::steady_clock::now()](std::size_t done, std::size_t all) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < kCheckReport || done == all) return;
    spdlog::info("checking the shards: {} of {}", done, all);
    last = now;
  };
  auto dataset = std::make_unique<data::Dataset>(std::move(options));
  TORCH_CHECK_VALUE(dataset->sequence_length() <= config.model.max_positions, "the shards have sequences of ",
                    dataset->sequence_length(), " tokens, but model.max_positions is ", config.model.max_positions);
  return dataset;
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

/// Counts and times since step 1 and since the last record.
struct Progress {
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  std::int64_t real_tokens = 0;
  std::int64_t steps_at_record = 0;
  std::int64_t sequences_at_record = 0;
  std::int64_t tokens_at_record = 0;
  std::chrono::steady_clock::time_point record_time = std::chrono::steady_clock::now();
};

class Run {
 public:
  Run(const RunConfig& config, data::Dataset& dataset, model::Model& model, c10::Device device)
      : config_(config),
        dataset_(dataset),
        device_(device),
        directory_(config.run.dir, config.run.overwrite, resolved_yaml(config)),
        metrics_(directory_.metrics_file()),
        optimizer_(config.optimizer, model.parameters()),
        step_(model, optimizer_, {config.train.grad_clip, config.train.seed}) {
    spdlog::default_logger()->sinks().push_back(
        std::make_shared<spdlog::sinks::basic_file_sink_mt>(directory_.log_file().string()));
  }

  const RunDirectory& directory() const { return directory_; }
  const Optimizer& optimizer() const { return optimizer_; }

  void loop() {
    const Schedule schedule = config_.learning_rates();
    reset_peak(device_);
    progress_.record_time = std::chrono::steady_clock::now();
    for (std::int64_t step = 1; step <= config_.train.steps; ++step) {
      const data::GlobalBatch global = dataset_.global_batch_at(step, config_.train.global_batch);
      const StepPlan plan{step, schedule.lr(step), dataset_.count_labels(global), global.count};
      const StepResult result = run_step(plan, global);
      const bool last = step == config_.train.steps;
      if (last || step == 1 || step % config_.run.log_every == 0) record(plan, global, result);
    }
  }

 private:
  StepResult run_step(const StepPlan& plan, const data::GlobalBatch& global) {
    std::int64_t offset = 0;
    return step_.run(plan, [&]() -> std::optional<data::Batch> {
      if (offset >= global.count) return std::nullopt;
      const std::int64_t count = std::min(config_.train.micro_batch, global.count - offset);
      data::Batch batch = dataset_.load(global, offset, count, device_);
      offset += count;
      progress_.sequences += batch.num_sequences;
      progress_.tokens += batch.num_tokens;
      progress_.real_tokens += batch.num_real_tokens;
      return batch;
    });
  }

  void record(const StepPlan& plan, const data::GlobalBatch& global, const StepResult& result) {
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
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - progress_.record_time).count();
    line.sequences = progress_.sequences;
    line.tokens = progress_.tokens;
    line.real_tokens = progress_.real_tokens;
    line.step_ms = seconds * 1000 / static_cast<double>(plan.step - progress_.steps_at_record);
    line.sequences_per_s = static_cast<double>(progress_.sequences - progress_.sequences_at_record) / seconds;
    line.tokens_per_s = static_cast<double>(progress_.tokens - progress_.tokens_at_record) / seconds;
    const MemoryUse memory = memory_use(device_);
    line.peak_allocated_bytes = memory.peak_bytes;
    line.peak_reserved_bytes = memory.peak_reserved_bytes;
    metrics_.write(line);
    spdlog::info(console_line(line, config_.train.steps));
    TORCH_CHECK(std::isfinite(line.loss) && std::isfinite(line.grad_norm), "step ", plan.step, ": the loss is ",
                line.loss, " and the gradient norm ", line.grad_norm,
                "; the run stops. A lower optimizer.lr or a longer warm-up often helps.");
    progress_.steps_at_record = plan.step;
    progress_.sequences_at_record = progress_.sequences;
    progress_.tokens_at_record = progress_.tokens;
    progress_.record_time = now;
    reset_peak(device_);
  }

  const RunConfig& config_;
  data::Dataset& dataset_;
  c10::Device device_;
  RunDirectory directory_;
  MetricsWriter metrics_;
  Optimizer optimizer_;
  TrainStep step_;
  Progress progress_;
};

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
  const std::unique_ptr<data::Dataset> dataset = open_dataset(config);
  if (config.init.from) build_model(config, c10::DeviceType::CPU);
  const std::int64_t epoch_steps =
      (dataset->num_examples() + config.train.global_batch - 1) / config.train.global_batch;
  return fmt::format(
      "The configuration is valid; nothing was written.\n"
      "  model   {} parameters, {} layers of {}\n"
      "  data    {} sequences of {} tokens, up to {} predictions each\n"
      "  run     {} steps of {} sequences in micro-batches of {}; an epoch is {} steps\n"
      "  into    {}\n",
      model::count_parameters(config.model), config.model.num_layers, config.model.hidden_size, dataset->num_examples(),
      dataset->sequence_length(), dataset->max_predictions(), config.train.steps, config.train.global_batch,
      config.train.micro_batch, epoch_steps, config.run.dir.string());
}

void train(const RunConfig& config) {
  set_threads(config.train.threads);
  const c10::Device device = choose_device(config.train.device);
  RunDirectory::check(config.run.dir, config.run.overwrite);
  const std::unique_ptr<data::Dataset> dataset = open_dataset(config);
  const std::unique_ptr<model::Model> model = build_model(config, device);
  Run run(config, *dataset, *model, device);
  spdlog::info("run {}", config.run.dir.string());
  spdlog::info("model: {} parameters ({} decayed, {} not) on {} with {} threads", model::count_parameters(config.model),
               run.optimizer().num_decayed(), run.optimizer().num_undecayed(), device.str(), at::get_num_threads());
  spdlog::info("data: {} sequences of {} tokens", dataset->num_examples(), dataset->sequence_length());
  run.loop();
  if (config.run.export_model) {
    model::save_hugging_face(*model, run.directory().export_folder(),
                             config.init.from.value_or(std::filesystem::path()));
    spdlog::info("exported to {}", run.directory().export_folder().string());
  }
}

}  // namespace tempo::train
