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

/// One word has a bias of -2e38: the loss of a batch with five such labels is beyond float32, its gradients are finite.
data::Batch batch_with_label(std::int64_t label) {
  data::Batch batch = sample_batch({8, 12, 3}, 12);
  const at::Tensor is_label = batch.labels.ne(data::kIgnoreLabel);
  batch.labels.copy_(at::where(is_label, at::full({}, label, at::kLong), batch.labels));
  return batch;
}

class NonFinite : public ::testing::TestWithParam<const char*> {
 protected:
  struct Run {
    explicit Run(const char* optimizer_name)
        : model(model::make_model(small_bert(), c10::kCPU)),
          optimizer(config(optimizer_name), model->parameters()),
          step(*model, optimizer, {1.0, 3}) {
      model->parameters().initialise(1);
      model->parameters().find("cls.predictions.bias")->value.detach()[kBadLabel].fill_(-2e38);
    }

    static OptimizerConfig config(const char* name) {
      OptimizerConfig config;
      config.name = name;
      return config;
    }

    StepResult take(std::int64_t number, std::int64_t label) {
      return step.run({number, 1e-3, 5, 3}, in_turn({batch_with_label(label)}));
    }

    std::vector<at::Tensor> state() const {
      std::vector<at::Tensor> tensors;
      for (const auto& parameter : model->parameters().all()) tensors.push_back(parameter.value.detach().clone());
      for (const auto& [name, tensor] : optimizer.state()) tensors.push_back(tensor.clone());
      return tensors;
    }

    std::unique_ptr<model::Model> model;
    Optimizer optimizer;
    TrainStep step;
  };

  static constexpr std::int64_t kBadLabel = 7;
};

TEST_P(NonFinite, StepIsSkippedAsIfItHadNotBeen) {
  Run with(GetParam());
  Run without(GetParam());
  for (Run* run : {&with, &without}) EXPECT_TRUE(run->take(1, 9).is_finite.item<bool>());
  const StepResult skipped = with.take(2, kBadLabel);
  EXPECT_FALSE(skipped.is_finite.item<bool>());
  EXPECT_TRUE(std::isinf(skipped.loss.item<double>()));
  EXPECT_EQ(with.optimizer.num_updates(), 1);
  for (Run* run : {&with, &without}) EXPECT_TRUE(run->take(3, 11).is_finite.item<bool>());
  EXPECT_EQ(with.optimizer.num_updates(), 2);
  const auto one = with.state();
  const auto other = without.state();
  for (std::size_t index = 0; index < one.size(); ++index) EXPECT_TRUE(at::equal(one[index], other[index])) << index;
}

TEST_P(NonFinite, GradientsAreFoundInTheirTensor) {
  Run run(GetParam());
  const auto& parameters = run.model->parameters().all();
  const auto before = run.state();
  parameters[2].value.detach().view({-1})[0].fill_(NAN);
  const StepResult result = run.take(1, 9);
  EXPECT_FALSE(result.is_finite.item<bool>());
  EXPECT_EQ(result.grad_squares.numel(), static_cast<std::int64_t>(parameters.size()));
  EXPECT_TRUE(std::isnan(result.grad_norm.item<double>()));
  EXPECT_TRUE(at::equal(run.state()[3], before[3]));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, NonFinite, ::testing::Values("adamw", "lamb"));

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
