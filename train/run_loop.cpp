#include "train/run_loop.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/evaluation.h"

namespace tempo::train {
namespace {

/// Seconds that writing the exported model will take, roughly: it is flushed to the disk, which a plain one takes at this rate.
double export_seconds(const RunConfig& config) {
  constexpr double kBytesPerSecond = 300e6;
  if (!config.run.export_model) return 0;
  return static_cast<double>(model::count_parameters(config.model)) * sizeof(float) / kBytesPerSecond;
}

RunLength length_of(const RunConfig& config, const RunData& data) {
  return {config.train.steps, evaluations_of(config), data.validation ? data.validation->num_examples() : 0,
          export_seconds(config)};
}

bool is_finite(const at::Tensor& tensor) { return std::isfinite(tensor.sum(at::kDouble).item<double>()); }

/// The tensor that a fault is to be looked for in: the first parameter that has it itself, or else whose gradient has.
std::string non_finite_tensor(const model::Model& model, const StepResult& result) {
  const std::vector<model::Parameter>& all = model.parameters().all();
  for (const model::Parameter& parameter : all) {
    if (!is_finite(parameter.value.detach())) return "the weights " + parameter.name + " are not finite";
  }
  const at::Tensor squares = result.grad_squares.cpu();
  std::string first;
  std::int64_t count = 0;
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (std::isfinite(squares.const_data_ptr<double>()[index])) continue;
    if (count++ == 0) first = all[index].name;
  }
  if (count == 0) return "only the loss is not finite";
  return fmt::format("the gradient of {}{} is not finite", first,
                     count > 1 ? fmt::format(" and of {} other {}", count - 1, count == 2 ? "tensor" : "tensors") : "");
}

}  // namespace

RunLoop::RunLoop(const RunConfig& config, const RunParts& parts, const RunStart& start)
    : config_(config),
      data_(parts.data),
      model_(parts.model),
      device_(parts.device),
      state_(start.state),
      lacks_evaluation_(start.lacks_evaluation),
      control_(parts.directory.path()),
      metrics_(parts.directory.metrics_file(), parts.directory.path()),
      step_(parts.model, parts.optimizer, {config.train.grad_clip, config.train.seed}),
      saver_(parts.directory.checkpoints(), config.run.keep, parts.model, parts.optimizer, parts.tokenizer,
             [this] { metrics_.flush(); }),
      saved_step_(start.is_saved ? start.state.step : -1),
      length_(length_of(config, parts.data)),
      meter_(parts.device, length_) {
  state_.examples = data_.training->num_examples();
  meter_.resume(state_.step, state_.sequences, state_.tokens, state_.real_tokens);
}

bool RunLoop::run() {
  tell_norms();
  display_ = std::make_unique<ProgressDisplay>("train");
  meter_.start();
  if (lacks_evaluation_) {
    if (const auto line = evaluation(state_.step)) metrics_.insert(*line);
  }
  if (!control_.stop_reason()) train();
  if (saved_step_ != state_.step) save();
  saver_.finish();
  display_->finish();
  return state_.step == config_.train.steps && !lacks_evaluation_;
}

void RunLoop::train() {
  const Schedule schedule = config_.learning_rates();
  const std::int64_t save_every = config_.run.checkpoint_every;
  data::Prefetcher batches(
      *data_.training, {state_.step + 1, config_.train.steps, config_.train.global_batch, config_.train.micro_batch});
  while (state_.step < config_.train.steps && !control_.stop_reason()) {
    step(schedule, batches);
    saver_.check();
    if (control_.take_save_request() || (save_every > 0 && state_.step % save_every == 0)) save();
  }
}

void RunLoop::step(const Schedule& schedule, data::Prefetcher& batches) {
  const std::int64_t number = state_.step + 1;
  const data::StepExamples examples = [&] {
    const RunMeter::Wait wait(meter_);
    return batches.next_step();
  }();
  const StepPlan plan{number, schedule.lr(number), examples.num_labels, examples.examples.count};
  const StepResult result = compute(plan, batches);
  meter_.end_step();
  count_skips(plan, result);
  const bool is_logged =
      number == config_.train.steps || number == config_.init.step + 1 || number % config_.run.log_every == 0;
  if (is_logged) last_record_ = measured(plan, examples.examples.epoch, result);
  // Written before the train line, so that the last line of the metrics is a train line.
  if (length_.evaluations.is_due(number)) {
    if (const auto line = evaluation(number)) metrics_.write(*line);
  }
  if (is_logged) {
    metrics_.write(last_record_);
    tell_norms();
  }
  show(number);
  state_.step = number;
  if (state_.skipped_in_a_row > config_.train.max_skipped_steps) end_for_skips(result);
}

StepResult RunLoop::compute(const StepPlan& plan, data::Prefetcher& batches) {
  std::int64_t done = 0;
  return step_.run(plan, [&]() -> std::optional<data::Batch> {
    // Steps of large batches take minutes. The first is not shown in parts: what is shown first is a record.
    if (last_record_.step > 0) {
      show(plan.step - 1, static_cast<double>(done) / static_cast<double>(plan.num_sequences));
    }
    const RunMeter::Wait wait(meter_);
    std::optional<data::HostBatch> rows = batches.next_batch();
    if (!rows) return std::nullopt;
    data::Batch batch = std::move(*rows).to(device_);
    done += batch.num_sequences;
    meter_.count(batch);
    return batch;
  });
}

void RunLoop::count_skips(const StepPlan& plan, const StepResult& result) {
  if (result.is_finite.item<bool>()) {
    state_.skipped_in_a_row = 0;
    return;
  }
  ++state_.skipped_steps;
  ++state_.skipped_in_a_row;
  spdlog::warn("step {} is skipped: the loss is {}, the gradient norm {}", plan.step, result.loss.item<double>(),
               result.grad_norm.item<double>());
}

void RunLoop::end_for_skips(const StepResult& result) {
  const std::int64_t skipped =
      std::exchange(state_.skipped_in_a_row, 0);  // who goes on from here has changed something
  save();
  saver_.finish();
  TORCH_CHECK(false, "step ", state_.step, ": ", skipped, " steps in a row were skipped, more than ",
              "train.max_skipped_steps (", config_.train.max_skipped_steps,
              "), and the run ends: ", non_finite_tensor(model_, result),
              ". What it had learned is saved; a lower optimizer.lr or a longer warm-up often helps.");
}

/// Nothing where somebody has asked for the end meanwhile: whoever resumes the run holds it then.
std::optional<ValidationRecord> RunLoop::evaluation(std::int64_t step) {
  meter_.begin_evaluation();
  std::optional<ValidationRecord> line =
      evaluate(model_, *data_.validation, config_.train.micro_batch, [&](std::int64_t done) {
        show(step, 0, fmt::format("  held out {}/{}", done, data_.validation->num_examples()));
        return control_.stop_reason() == nullptr;
      });
  lacks_evaluation_ = !line;
  if (line) {
    line->step = step;
    spdlog::info(console_text(*line));
  }
  meter_.end_evaluation();
  return line;
}

/// Which norms of the blocks do not do what layers.layer_norm asks for, each once.
void RunLoop::tell_norms() {
  if (config_.layers.layer_norm != layers::NormOption::kTempo) return;
  const std::string suffix = "LayerNorm.weight";
  for (const model::Parameter& gamma : model_.parameters().all()) {
    const std::size_t stem = gamma.name.size() - std::min(gamma.name.size(), suffix.size());
    const bool is_of_block = gamma.name.compare(stem, suffix.size(), suffix) == 0 && gamma.name.rfind("bert.", 0) == 0;
    if (!is_of_block || told_norms_.count(gamma.name) != 0) continue;
    const std::string name = gamma.name.substr(0, gamma.name.size() - std::string(".weight").size());
    const model::Parameter* beta = model_.parameters().find(name + ".bias");
    if (layers::is_norm_invertible(gamma.value, beta->value).item<bool>()) continue;
    spdlog::warn("{} cannot be inverted (a gamma near 0, or beta over 100 times as large): it keeps its input", name);
    told_norms_.insert(gamma.name);
  }
}

void RunLoop::save() {
  state_.sequences = meter_.sequences();
  state_.tokens = meter_.tokens();
  state_.real_tokens = meter_.real_tokens();
  saver_.save(state_);
  saved_step_ = state_.step;
}

TrainRecord RunLoop::measured(const StepPlan& plan, std::int64_t epoch, const StepResult& result) {
  TrainRecord line;
  line.step = plan.step;
  line.epoch = epoch;
  line.loss = result.loss.item<double>();
  line.token_loss = result.token_loss.item<double>();
  line.sentence_loss = result.sentence_loss.item<double>();
  line.token_accuracy = static_cast<double>(result.num_correct.item<std::int64_t>()) /
                        static_cast<double>(std::max<std::int64_t>(plan.num_labels, 1));
  line.lr = plan.lr;
  line.grad_norm = result.grad_norm.item<double>();
  line.skipped_steps = state_.skipped_steps;
  meter_.measure(line);
  return line;
}

/// The steps done, what goes on besides, and the last record; with its step where that is an earlier one. `part` is the share of
/// the next step that is done.
void RunLoop::show(std::int64_t step, double part, const std::string& besides) const {
  const std::int64_t steps = config_.train.steps;
  std::string text = fmt::format("step {:>{}}/{}{}", step, std::to_string(steps).size(), steps, besides);
  if (last_record_.step > 0) {
    text += last_record_.step < step ? fmt::format("  at {}: ", last_record_.step) : "  ";
    text += console_text(last_record_);
  }
  display_->update((static_cast<double>(step) + part) / static_cast<double>(steps), text, meter_.seconds_left(part));
}

}  // namespace tempo::train
