// The loss on data that is never trained on.
//
// The whole validation set is computed with the weights as they are: no dropout, no gradients, nothing drawn at random, so an
// evaluation changes nothing of the training around it.
// Not for: when to record it (run_loop.h), its time and memory beside the training's (run_meter.h). Thread rule: one forward at a
// time, as the model's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/dataset.h"
#include "model/model.h"
#include "train/metrics.h"
#include "train/run_config.h"

namespace tempo::train {

/// When a run of `last_step` steps evaluates: every `every` steps and after the last one; never with 0.
struct EvaluationPlan {
  std::int64_t every = 0;
  std::int64_t last_step = 0;

  bool is_due(std::int64_t step) const;
  /// Evaluations of the whole run.
  std::int64_t count() const;
  /// Those up to and after `step`.
  std::int64_t count_until(std::int64_t step) const;
};

/// Those that a run's configuration asks for.
EvaluationPlan evaluations_of(const RunConfig& config);

/// Computes every sequence of `dataset` once, in micro-batches of at most `micro_batch`. Losses are sums over the set divided by
/// its labels and its sequences; the cut changes nothing but rounding. `on_batch`, where given, hears how many sequences are done
/// and says whether to go on; nothing is returned where it said no. The record's step is left 0.
std::optional<ValidationRecord> evaluate(const model::Model& model, data::Dataset& dataset, std::int64_t micro_batch,
                                         const std::function<bool(std::int64_t)>& on_batch = {});

}  // namespace tempo::train
