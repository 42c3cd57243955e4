#include "train/layer_bench.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "data/examples.h"
#include "model/model.h"
#include "train/device.h"
#include "train/layer_presets.h"
#include "train/memory_tracker.h"
#include "train/train_step.h"

namespace tempo::train {
namespace {

/// Full sequences of random tokens with as many labels as BERT's recipes mask.
data::Batch random_batch(const model::ModelConfig& config, const BenchPlan& plan, c10::Device device) {
  const std::int64_t count = plan.micro_batch;
  const std::int64_t length = plan.sequence_length;
  const std::int64_t predictions = data::default_max_predictions(length);
  auto generator = at::detail::createCPUGenerator(/*seed=*/1);
  const auto whole = at::TensorOptions(at::kLong);
  data::Batch batch;
  batch.token_ids = at::randint(0, config.vocab_size, {count * length}, generator, whole).to(device);
  batch.position_ids = at::arange(length, whole).repeat({count}).to(device);
  batch.token_types = at::zeros({count * length}, whole).to(device);
  const at::Tensor starts = at::arange(0, count * length + 1, length, whole);
  batch.sequence_starts = starts.to(device);
  batch.sequence_lengths = at::full({count}, length, whole).to(device);
  batch.sequence_ids = at::arange(count, whole).to(device);
  batch.label_positions =
      at::add(starts.narrow(0, 0, count).unsqueeze(1), at::arange(1, predictions + 1, whole)).flatten().to(device);
  batch.labels = at::randint(0, config.vocab_size, {count * predictions}, generator, whole).to(device);
  batch.next_sentence = at::randint(0, 2, {count}, generator, whole).to(device);
  batch.num_tokens = batch.num_real_tokens = count * length;
  batch.num_sequences = count;
  batch.num_labels = count * predictions;
  const auto* first = starts.const_data_ptr<std::int64_t>();
  batch.host_starts.assign(first, first + starts.numel());
  return batch;
}

/// What is alive after the forward pass of an encoder of so many blocks, and was not before.
std::int64_t bytes_after_forward(model::ModelConfig config, std::int64_t num_layers,
                                 const layers::LayerOptions& options, const data::Batch& batch, c10::Device device) {
  config.num_layers = num_layers;
  const std::unique_ptr<model::Model> model = model::make_model(config, device, options);
  model->parameters().initialise(1);
  const std::int64_t before = memory_use(device).live_bytes;
  const at::Tensor hidden = model->encode(batch, model::make_context(batch, true, 1, 1));
  return memory_use(device).live_bytes - before;
}

}  // namespace

std::vector<BenchRow> bench_layers(const RunConfig& config, c10::Device device, const BenchPlan& plan,
                                   const std::function<void(double)>& on_progress) {
  const data::Batch batch = random_batch(config.model, plan, device);
  std::vector<BenchRow> rows;
  for (const std::string& preset : plan.presets) {
    const layers::LayerOptions options = layer_preset(preset);
    BenchRow row;
    row.layers = preset;
    row.kept_bytes_per_block = bytes_after_forward(config.model, 3, options, batch, device) -
                               bytes_after_forward(config.model, 2, options, batch, device);
    rows.push_back(row);
  }
  const std::unique_ptr<model::Model> model = model::make_model(config.model, device);
  model->parameters().initialise(config.train.seed);
  Optimizer optimizer(config.optimizer, model->parameters());
  TrainStep step(*model, optimizer, {config.train.grad_clip, config.train.seed});
  std::map<std::string, std::vector<double>> times;
  std::int64_t number = 0;
  const std::int64_t total = plan.rounds * static_cast<std::int64_t>(rows.size()) * (plan.steps + 1);
  for (std::int64_t round = 0; round < plan.rounds; ++round) {
    for (BenchRow& row : rows) {
      model->set_layers(layer_preset(row.layers));
      for (std::int64_t taken = 0; taken <= plan.steps; ++taken) {
        reset_peak(device);
        const auto start = std::chrono::steady_clock::now();
        bool is_given = false;
        // A rate so small that the model stays what it is: all sets compute the same.
        step.run({++number, 1e-12, batch.num_labels, batch.num_sequences}, [&]() -> std::optional<data::Batch> {
          return std::exchange(is_given, true) ? std::nullopt : std::optional(batch);
        });
        wait_for(device);
        const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
        if (taken > 0) times[row.layers].push_back(elapsed.count());
        row.peak_allocated_bytes = memory_use(device).peak_bytes;
        on_progress(static_cast<double>(number) / static_cast<double>(total));
      }
    }
  }
  for (BenchRow& row : rows) {
    std::vector<double>& all = times[row.layers];
    std::sort(all.begin(), all.end());
    row.median_ms = all[all.size() / 2];
    row.min_ms = all.front();
    row.max_ms = all.back();
  }
  return rows;
}

}  // namespace tempo::train
