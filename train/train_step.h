// One optimizer step: forward and backward over the micro-batches of a global batch, clipping, update.
//
// Losses are summed over the whole global batch and divided by its counts, so the cut into micro-batches changes nothing but
// rounding. Where a loss or a gradient is not finite, the update is skipped by a flag on the device. Nothing is read back from
// there: results are tensors that the caller reads when it needs them. The same step runs on the meta device.
// Not for: where batches come from or what is logged (run_loop.h). Thread rule: one step at a time.
#pragma once

#include <functional>
#include <optional>

#include "data/batch.h"
#include "model/model.h"
#include "train/optimizer.h"

namespace tempo::train {

struct TrainStepOptions {
  double grad_clip = 0;    ///< largest global norm of the gradient; 0 = off
  std::uint64_t seed = 0;  ///< keys dropout
};

/// What a step is told: its number from 1, its rate, and the counts of the whole global batch.
struct StepPlan {
  std::int64_t step = 0;
  double lr = 0;
  std::int64_t num_labels = 0;
  std::int64_t num_sequences = 0;
};

/// Scalars on the device; losses are means over the global batch.
struct StepResult {
  at::Tensor loss;           ///< float64: token_loss + sentence_loss
  at::Tensor token_loss;     ///< float64
  at::Tensor sentence_loss;  ///< float64
  at::Tensor num_correct;    ///< int64
  at::Tensor grad_norm;      ///< float64, before clipping
  at::Tensor grad_squares;   ///< float64 [parameters], in their order: squared norm of each gradient
  at::Tensor is_finite;      ///< bool: loss and norm are, and the update was done
};

class TrainStep {
 public:
  /// `model` and `optimizer` must outlive the step.
  TrainStep(model::Model& model, Optimizer& optimizer, const TrainStepOptions& options);

  /// Runs one step; `next` gives the micro-batches and then nothing. The gradients are released before it returns.
  StepResult run(const StepPlan& plan, const std::function<std::optional<data::Batch>()>& next);

 private:
  void clear_gradients();
  at::Tensor gradient_squares() const;

  model::Model& model_;
  Optimizer& optimizer_;
  TrainStepOptions options_;
};

}  // namespace tempo::train
