// AdamW or LAMB over the parameters of a model, with their state.
//
// Weight decay goes to tensors of two or more dimensions: weights and embedding tables, never biases or LayerNorm. LAMB adapts
// exactly the tensors it decays, as NVIDIA's recipe does (docs/operators.md).
// Not for: schedules (schedule.h) or gradients (train_step.h). Thread rule: one step at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "layers/ops/ops.h"
#include "model/parameters.h"
#include "train/run_config.h"

namespace tempo::train {

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, const model::Parameters& parameters);

  /// One update from the parameters' gradients times `gradient_scale` (a float scalar on the device); where `is_finite` (a bool
  /// scalar there) is false nothing changes, and it does not count. LAMB uses the gradients' storage as scratch. Every parameter
  /// must have a gradient.
  void step(double lr, const at::Tensor& gradient_scale, const at::Tensor& is_finite);

  /// "moment.NAME" and "variance.NAME" of every parameter: views, not copies.
  std::vector<std::pair<std::string, at::Tensor>> state() const;

  /// Updates done: Adam's t. Set together with the tensors of state(). Reading it waits for the device.
  std::int64_t num_updates() const;
  void set_num_updates(std::int64_t count);

  /// Elements that are decayed, and those that are not.
  std::int64_t num_decayed() const { return groups_[0].num_elements; }
  std::int64_t num_undecayed() const { return groups_[1].num_elements; }

 private:
  struct Group {
    double weight_decay = 0;
    std::int64_t num_elements = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, moments, variances;
  };

  OptimizerConfig config_;
  at::Tensor num_updates_;  ///< int64 scalar on the device
  Group groups_[2];         ///< decayed, undecayed
};

}  // namespace tempo::train
