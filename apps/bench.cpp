#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "train/device.h"
#include "train/layer_bench.h"
#include "train/layer_presets.h"
#include "train/metrics.h"
#include "train/progress_display.h"
#include "train/run_config.h"

namespace tempo::apps {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  train::BenchPlan plan;
  bool is_json = false;
};

double sequences_per_s(const train::BenchRow& row, const train::BenchPlan& plan) {
  return static_cast<double>(plan.micro_batch) * 1000 / row.median_ms;
}

void print_json(const std::vector<train::BenchRow>& rows, const train::BenchPlan& plan) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const train::BenchRow& row : rows) {
    list.push_back({{"layers", row.layers},
                    {"micro_batch", plan.micro_batch},
                    {"sequence_length", plan.sequence_length},
                    {"step_ms", {{"median", row.median_ms}, {"min", row.min_ms}, {"max", row.max_ms}}},
                    {"sequences_per_s", sequences_per_s(row, plan)},
                    {"peak_allocated_bytes", row.peak_allocated_bytes},
                    {"kept_bytes_per_block", row.kept_bytes_per_block}});
  }
  std::cout << nlohmann::ordered_json{{"rows", list}}.dump(2) << "\n";
}

void print_table(const std::vector<train::BenchRow>& rows, const train::BenchPlan& plan) {
  std::cout << fmt::format("micro-batches of {} sequences of {} tokens; steps in ms, median (range)\n",
                           plan.micro_batch, plan.sequence_length)
            << fmt::format("{:<11} {:>28} {:>7} {:>8} {:>12} {:>16}\n", "layers", "step", "ratio", "seq/s", "peak",
                           "kept per block");
  for (const train::BenchRow& row : rows) {
    const std::string times = fmt::format("{:.1f} ({:.1f} to {:.1f})", row.median_ms, row.min_ms, row.max_ms);
    std::cout << fmt::format("{:<11} {:>28} {:>7.3f} {:>8.3g} {:>12} {:>16}\n", row.layers, times,
                             row.median_ms / rows.front().median_ms, sequences_per_s(row, plan),
                             train::bytes_text(row.peak_allocated_bytes), train::bytes_text(row.kept_bytes_per_block));
  }
}

void bench(const Arguments& arguments) {
  const train::RunConfig config = train::load_bench_config(arguments.config, arguments.overrides);
  train::BenchPlan plan = arguments.plan;
  if (plan.presets.empty()) plan.presets = train::layer_preset_names();
  if (plan.micro_batch == 0) plan.micro_batch = config.train.micro_batch;
  plan.sequence_length = config.data.sequence_length;
  const c10::Device device = train::open_device(config);
  std::vector<train::BenchRow> rows;
  {
    train::ProgressDisplay display("bench");
    const auto start = std::chrono::steady_clock::now();
    rows = train::bench_layers(config, device, plan, [&](double share) {
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      display.update(share, device.str(), seconds * (1 - share) / share);
    });
  }
  arguments.is_json ? print_json(rows, plan) : print_table(rows, plan);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "Measure sets of layers: step time, peak memory, bytes kept");
  command->add_option("CONFIG", arguments->config, "YAML file; neither shards nor a run directory are needed")
      ->required();
  command->add_option("KEY=VALUE", arguments->overrides, "Overrides of single keys, as model.num_layers=4");
  command->add_option("--layers", arguments->plan.presets, "Presets, separated by commas; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(train::layer_preset_names()));
  command
      ->add_option("--micro-batch", arguments->plan.micro_batch,
                   "Sequences of a step; default: train.micro_batch, or 8")
      ->check(CLI::PositiveNumber);
  command->add_option("--rounds", arguments->plan.rounds, "Turns of each set")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps", arguments->plan.steps, "Steps of each turn that are counted, after one that is not")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", arguments->is_json, "Print JSON");
  command->callback([arguments] { bench(*arguments); });
}

}  // namespace tempo::apps
