// Measures sets of layers beside each other: time of a training step, its peak of memory, and what a block keeps.
//
// All sets train one model on one batch of random tokens, in turn within each round, so that a machine whose speed changes changes
// it for all. No shards are needed, and nothing is written.
// Not for: predictions (the planner). Thread rule: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/run_config.h"

namespace tempo::train {

struct BenchPlan {
  std::vector<std::string> presets;  ///< names of layer_presets.h
  std::int64_t micro_batch = 0;
  std::int64_t sequence_length = 0;
  std::int64_t rounds = 3;
  std::int64_t steps = 2;  ///< that count, of each set in each round; one before them does not
};

struct BenchRow {
  std::string layers;
  double median_ms = 0;  ///< of a step
  double min_ms = 0;
  double max_ms = 0;
  std::int64_t peak_allocated_bytes = 0;  ///< of a step: parameters, gradients, moments, activations, workspaces
  std::int64_t kept_bytes_per_block = 0;  ///< between forward and backward pass, by each block but the first
};

/// One row per preset, in their order. `on_progress` hears the share that is done.
std::vector<BenchRow> bench_layers(const RunConfig& config, c10::Device device, const BenchPlan& plan,
                                   const std::function<void(double)>& on_progress);

}  // namespace tempo::train
