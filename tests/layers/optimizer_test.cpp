// AdamW and LAMB against their formulas in double.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layers/math/optimizer.h"
#include "layers/ops/ops.h"
#include "tests/support/op_cases.h"

namespace tempo::testing {
namespace {

struct State {
  at::Tensor parameter, gradient, moment, variance;

  State to(at::ScalarType type) const {
    return {parameter.to(type), gradient.to(type), moment.to(type), variance.to(type)};
  }
};

State random_state(std::int64_t size, std::uint64_t seed) {
  return State{random({size}, seed), random({size}, seed + 1, 0.1), random({size}, seed + 2, 0.1),
               random({size}, seed + 3, 0.1).abs()}
      .to(at::kFloat);
}

/// formats.md 2.1, step 2, in double; returns u + wd p for LAMB and u for AdamW.
at::Tensor direction(State& s, double scale, const layers::AdamStep& step, std::int64_t count, double decay) {
  const at::Tensor g = s.gradient * scale;
  s.moment = s.moment * step.beta1 + g * (1 - step.beta1);
  s.variance = s.variance * step.beta2 + g * g * (1 - step.beta2);
  const double c1 = step.bias_correction ? 1 - std::pow(step.beta1, count) : 1;
  const double c2 = step.bias_correction ? 1 - std::pow(step.beta2, count) : 1;
  return (s.moment / c1) / ((s.variance / c2).sqrt() + step.eps) + s.parameter * decay;
}

/// Of an update, as the operators take it.
at::Tensor number(std::int64_t count) { return at::scalar_tensor(count, at::kLong); }

void expect_near(const at::Tensor& ours, const at::Tensor& expected, double tolerance) {
  EXPECT_LE((ours.to(at::kDouble) - expected).abs().max().item<double>(),
            tolerance * std::max(1.0, expected.abs().max().item<double>()));
}

class OptimizerSteps : public ::testing::TestWithParam<bool> {};

TEST_P(OptimizerSteps, AdamWEqualsItsFormula) {
  const layers::AdamStep step{3e-3, 0.9, 0.98, 1e-6, 0.1, GetParam()};
  const State s = random_state(100003, 1);
  State expected = s.to(at::kDouble);
  const at::Tensor u = direction(expected, 0.5, step, 3, 0);
  expected.parameter = expected.parameter * (1 - step.lr * step.weight_decay) - u * step.lr;
  layers::adamw_step_({s.parameter}, {s.gradient}, {s.moment}, {s.variance}, at::tensor(0.5f), number(3), step);
  expect_near(s.parameter, expected.parameter, 1e-7);
  expect_near(s.moment, expected.moment, 1e-7);
  expect_near(s.variance, expected.variance, 1e-7);
}

TEST_P(OptimizerSteps, LambEqualsItsFormula) {
  const layers::AdamStep step{3e-3, 0.9, 0.999, 1e-6, 0.01, GetParam()};
  const State s = random_state(100003, 5);
  State expected = s.to(at::kDouble);
  const at::Tensor u = direction(expected, 1, step, 2, step.weight_decay);
  expected.parameter =
      expected.parameter - u * (step.lr * expected.parameter.norm().item<double>() / u.norm().item<double>());
  layers::lamb_step_({s.parameter}, {s.gradient}, {s.moment}, {s.variance}, at::tensor(1.0f), number(2), step);
  expect_near(s.parameter, expected.parameter, 2e-7);
}

INSTANTIATE_TEST_SUITE_P(BiasCorrection, OptimizerSteps, ::testing::Bool());

TEST(Lamb, TakesThePlainStepWhereANormIsZero) {
  State s = random_state(1000, 9);
  s.parameter.zero_();
  s.moment.zero_();
  s.variance.zero_();
  const layers::AdamStep step{0.01, 0.9, 0.999, 1e-6, 0.01, true};
  layers::lamb_step_({s.parameter}, {s.gradient}, {s.moment}, {s.variance}, at::tensor(1.0f), number(1), step);
  EXPECT_NEAR(s.parameter.abs().max().item<double>(), 0.01, 1e-5);
  State still = random_state(10, 10);
  for (at::Tensor* tensor : {&still.parameter, &still.gradient, &still.moment, &still.variance}) tensor->zero_();
  layers::lamb_step_({still.parameter}, {still.gradient}, {still.moment}, {still.variance}, at::tensor(1.0f), number(1),
                     step);
  EXPECT_TRUE(at::equal(still.parameter, at::zeros({10})));
}

TEST(SkippedStep, ChangesNothing) {
  for (const auto take : {layers::adamw_step_, layers::lamb_step_}) {
    const State s = random_state(5000, 13);
    s.gradient.fill_(std::numeric_limits<float>::quiet_NaN());
    const State before{s.parameter.clone(), s.gradient, s.moment.clone(), s.variance.clone()};
    take({s.parameter}, {s.gradient}, {s.moment}, {s.variance}, s.gradient[0], number(0), {1e-2});
    EXPECT_TRUE(at::equal(s.parameter, before.parameter));
    EXPECT_TRUE(at::equal(s.moment, before.moment));
    EXPECT_TRUE(at::equal(s.variance, before.variance));
  }
}

TEST(BiasCorrection, HoldsForAnyNumberOfUpdates) {
  for (const std::int64_t count : {1, 2, 3, 1000, 1'000'000}) {
    const layers::math::AdamScalars scalars = layers::math::adam_scalars({0.9, 0.999, 1e-6, true}, count);
    EXPECT_FLOAT_EQ(scalars.inverse_c1, 1 / (1 - std::pow(0.9, count)));
    EXPECT_FLOAT_EQ(scalars.inverse_sqrt_c2, 1 / std::sqrt(1 - std::pow(0.999, count)));
  }
}

TEST(SumsOfSquares, AreAddedInDoubleAndTheSameOnAnyNumberOfThreads) {
  const at::Tensor a = random({100001}, 1).to(at::kFloat);
  const at::Tensor b = random({3, 7}, 2).to(at::kFloat);
  const at::Tensor expected = at::stack({a.to(at::kDouble).square().sum(), b.to(at::kDouble).square().sum()});
  const at::Tensor many = layers::sums_of_squares({a, b});
  EXPECT_TRUE(at::allclose(many, expected, 1e-13, 0));
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(layers::sums_of_squares({a, b}), many));
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace tempo::testing
