#include "train/train_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/sample_batches.h"

namespace tempo::train {
namespace {

using testing::sample_batch;
using testing::small_bert;

/// Gives the batches one after another, then nothing.
std::function<std::optional<data::Batch>()> in_turn(std::vector<data::Batch> batches) {
  return [batches = std::move(batches), next = std::size_t{0}]() mutable -> std::optional<data::Batch> {
    if (next == batches.size()) return std::nullopt;
    return batches[next++];
  };
}

struct Fixture {
  explicit Fixture(c10::Device device, double grad_clip = 1.0)
      : model(model::make_model(small_bert(), device)),
        optimizer(OptimizerConfig{}, model->parameters()),
        step(*model, optimizer, {grad_clip, 3}) {
    model->parameters().initialise(1);
  }

  std::unique_ptr<model::Model> model;
  Optimizer optimizer;
  TrainStep step;
};

TEST(TrainStep, RunsOnTheMetaDevice) {
  Fixture fixture(c10::kMeta);
  const StepResult result = fixture.step.run({1, 1e-3, 5, 3}, in_turn({sample_batch({8, 12, 3}, 12, c10::kMeta)}));
  EXPECT_TRUE(result.loss.is_meta());
  EXPECT_EQ(result.grad_norm.dim(), 0);
}

TEST(TrainStep, LowersTheLossOfABatchItSeesAgain) {
  Fixture fixture(c10::kCPU);
  double first = 0;
  double last = 0;
  for (std::int64_t step = 1; step <= 30; ++step) {
    last = fixture.step.run({step, 3e-3, 5, 3}, in_turn({sample_batch({8, 12, 3}, 12)})).loss.item<double>();
    if (step == 1) first = last;
  }
  EXPECT_NEAR(first, std::log(50.0) + std::log(2.0), 0.3);
  EXPECT_LT(last, first - 0.5);
}

TEST(TrainStep, ReleasesTheGradients) {
  Fixture fixture(c10::kCPU);
  fixture.step.run({1, 1e-3, 5, 3}, in_turn({sample_batch({8, 12, 3}, 12)}));
  for (const model::Parameter& parameter : fixture.model->parameters().all())
    EXPECT_FALSE(parameter.value.grad().defined());
}

TEST(TrainStep, ClipsWhatTheOptimizerSeesButReportsTheWholeNorm) {
  Fixture clipped(c10::kCPU, 1e-3);
  Fixture free(c10::kCPU, 0);
  const auto run = [](Fixture& fixture) {
    return fixture.step.run({1, 1e-3, 5, 3}, in_turn({sample_batch({8, 12, 3}, 12)}));
  };
  EXPECT_EQ(run(clipped).grad_norm.item<double>(), run(free).grad_norm.item<double>());
}

TEST(TrainStep, HasALossOfZeroForABatchWithoutLabels) {
  Fixture fixture(c10::kCPU);
  data::Batch batch = sample_batch({8}, 12);
  batch.labels.fill_(data::kIgnoreLabel);
  const StepResult result = fixture.step.run({1, 1e-3, 0, 1}, in_turn({batch}));
  EXPECT_EQ(result.token_loss.item<double>(), 0);
  EXPECT_TRUE(std::isfinite(result.grad_norm.item<double>()));
}

}  // namespace
}  // namespace tempo::train
