// Every operator against ATen on the inputs of op_cases.h.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/op_cases.h"
#include "tests/support/op_evaluation.h"

namespace tempo::testing {
namespace {

class Operators : public ::testing::TestWithParam<OpCase> {};

/// In 16 bits the reference gets the rounded inputs: what is compared is what the operator adds.
void compare_with_reference(const OpCase& op, at::ScalarType type) {
  const double tolerance = tolerance_of(op.name).of(type);
  const at::ScalarType rounded_to = c10::elementSize(type) == 2 ? type : at::kDouble;
  const Result reference = evaluate(op, op.reference, prepared(op, at::kDouble, rounded_to), rounded_to);
  const Result ours = evaluate(op, op.ours, prepared(op, type));
  expect_close(ours.value, reference.value, tolerance, "value");
  for (std::size_t i = 0; i < ours.grads.size(); ++i) {
    expect_close(ours.grads[i], reference.grads[i], tolerance * 4, "gradient of input " + std::to_string(i));
  }
}

TEST_P(Operators, EqualATenInDouble) { compare_with_reference(GetParam(), at::kDouble); }

TEST_P(Operators, EqualATenInFloat) { compare_with_reference(GetParam(), at::kFloat); }

TEST_P(Operators, EqualATenInBFloat16) { compare_with_reference(GetParam(), at::kBFloat16); }

TEST_P(Operators, EqualATenInHalf) { compare_with_reference(GetParam(), at::kHalf); }

TEST_P(Operators, GiveEqualGradientsTwice) {
  const OpCase& op = GetParam();
  for (const at::ScalarType type : kStorageTypes) {
    Tensors inputs = prepared(op, type);
    const at::Tensor value = op.ours(inputs);
    if (value.numel() == 0) return;  // nothing to differentiate
    value.backward(cotangent(value), /*retain_graph=*/true);
    Tensors first;
    for (std::size_t i = 0; i < op.num_differentiable; ++i) {
      first.push_back(inputs[i].grad().clone());
      inputs[i].mutable_grad().reset();
    }
    value.backward(cotangent(value));
    for (std::size_t i = 0; i < op.num_differentiable; ++i)
      EXPECT_TRUE(at::equal(first[i], inputs[i].grad())) << type << ", input " << i;
  }
}

TEST_P(Operators, GiveTheSameBitsOnOneThread) {
  const OpCase& op = GetParam();
  // Matrix products are the BLAS's own; what is ours must not depend on threads.
  for (const char* product : {"linear", "qkv"}) {
    if (op.name.find(product) != std::string::npos) return;
  }
  const int threads = at::get_num_threads();
  const Result many = evaluate(op, op.ours, prepared(op, at::kFloat));
  at::set_num_threads(1);
  const Result one = evaluate(op, op.ours, prepared(op, at::kFloat));
  at::set_num_threads(threads);
  if (op.name.rfind("mlp", 0) == 0) return;  // as below: its value is a product of products
  EXPECT_TRUE(at::equal(many.value, one.value));
  for (std::size_t i = 0; i < one.grads.size(); ++i)
    EXPECT_TRUE(at::equal(many.grads[i], one.grads[i])) << "input " << i;
}

TEST_P(Operators, HaveTheSameShapesAndTypesOnMeta) {
  const OpCase& op = GetParam();
  for (const at::ScalarType type : kStorageTypes) {
    const Result real = evaluate(op, op.ours, prepared(op, type));
    Tensors inputs = prepared(op, type);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = inputs[i].detach().to(at::kMeta).set_requires_grad(i < op.num_differentiable);
    }
    const at::Tensor value = op.ours(inputs);
    ASSERT_TRUE(value.is_meta());
    EXPECT_EQ(value.sizes(), real.value.sizes());
    EXPECT_EQ(value.scalar_type(), real.value.scalar_type());
    if (value.numel() == 0) return;
    value.backward(at::empty_like(value));
    for (std::size_t i = 0; i < op.num_differentiable; ++i) {
      EXPECT_EQ(inputs[i].grad().sizes(), real.grads[i].sizes());
      EXPECT_EQ(inputs[i].grad().scalar_type(), type);
    }
  }
}

TEST_P(Operators, TakeTensorsOfAnyLayout) {
  const OpCase& op = GetParam();
  for (const at::ScalarType type : kStorageTypes) {
    const Result plain = evaluate(op, op.ours, prepared(op, type));
    const Tensors inputs = prepared(op, type);
    Tensors strided = inputs;
    // Operators read activations of any strides; tables and parameters are contiguous, and that is checked.
    if (inputs[0].dim() == 2) strided[0] = inputs[0].t().contiguous().t();
    if (op.name == "embedding_sum") {
      EXPECT_THROW(op.ours(strided), c10::Error);
      return;
    }
    const at::Tensor value = op.ours(strided);
    ASSERT_EQ(value.sizes(), plain.value.sizes());
    const double tolerance = type == at::kFloat ? 2e-6 : 2 * tolerance_of(op.name).of(type);
    expect_close(value.detach(), plain.value.to(at::kDouble), tolerance, std::string("value, ") + toString(type));
  }
}

TEST_P(Operators, RefuseSecondDerivatives) {
  const OpCase& op = GetParam();
  const at::Tensor value = op.ours(prepared(op, at::kFloat));
  if (value.numel() == 0) return;  // nothing to differentiate
  EXPECT_THROW(value.backward(cotangent(value), /*retain_graph=*/true, /*create_graph=*/true), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(All, Operators, ::testing::ValuesIn(op_cases()),
                         [](const ::testing::TestParamInfo<OpCase>& tested) { return tested.param.name; });

TEST(Attention, LeavesZerosWhereThereIsNothingToAttendTo) {
  const layers::Sequences in = sequences({4, 4}, {0, 3}, {0, 1});
  for (const at::ScalarType type : kStorageTypes) {
    const at::Tensor x = random({8, 4}, 1).to(type);
    for (const AttentionForm& form : attention_forms()) {
      const at::Tensor context = layers::attention(x, x, x, form.options, in, {0.5, 1, 1, 1});
      EXPECT_TRUE(at::equal(context.narrow(0, 0, 4), at::zeros({4, 4}, type))) << form.name;
      EXPECT_TRUE(at::equal(context[7], at::zeros({4}, type))) << form.name;
      EXPECT_TRUE(at::isfinite(context).all().item<bool>()) << form.name;
    }
  }
}

/// Value and gradients of attention over three chunks of queries.
Tensors attention_result(const layers::AttentionOptions& options, at::ScalarType type = at::kFloat) {
  Tensors inputs;
  for (const std::uint64_t seed : {1, 2, 3}) inputs.push_back(random({280, 16}, seed).to(type).set_requires_grad(true));
  const layers::Sequences in = sequences({10, 270}, {7, 270}, {4, 5});
  const at::Tensor value = layers::attention(inputs[0], inputs[1], inputs[2], options, in, {0.2, 3, 2, 1});
  value.backward(cotangent(value));
  Tensors result{value.detach()};
  for (const at::Tensor& input : inputs) result.push_back(input.grad());
  return result;
}

TEST(Attention, IsTheSameToTheBitWhateverItKeepsOfTheProbabilities) {
  for (const at::ScalarType type : kStorageTypes) {
    for (const AttentionForm& form : attention_forms()) {
      layers::AttentionOptions baseline = form.options;
      baseline.keep = layers::AttentionKeep::kDropped;
      baseline.mask = layers::MaskKeep::kBytes;
      const Tensors expected = attention_result(baseline, type);
      const Tensors result = attention_result(form.options, type);
      EXPECT_TRUE(at::equal(result[0], expected[0])) << form.name;
      for (std::size_t i = 1; i < result.size(); ++i) {
        if (form.options.keep == layers::AttentionKeep::kLogSumExp) {
          expect_close(result[i], expected[i].to(at::kDouble), type == at::kFloat ? 1e-6 : Tolerance{0, 0, 1}.of(type),
                       form.name + " in " + toString(type));
        } else {
          EXPECT_TRUE(at::equal(result[i], expected[i])) << form.name << " gradient " << i;
        }
      }
    }
  }
}

TEST(Attention, DoesNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const AttentionForm& form : attention_forms()) {
    const Tensors many = attention_result(form.options);
    at::set_num_threads(1);
    const Tensors one = attention_result(form.options);
    at::set_num_threads(threads);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], many[i])) << form.name;
  }
}

TEST(CrossEntropy, CountsTheRowsWhoseLargestLogitIsTheLabels) {
  at::Tensor logits = at::zeros({4, 6});
  for (const std::int64_t row : {0, 1, 2, 3}) logits[row][row] = 5;
  logits[1][5] = 9;  // a padding column never wins
  const layers::CrossEntropy result = layers::cross_entropy(logits, whole({0, 1, 3, -100}), 5, -100);
  EXPECT_EQ(result.num_correct.item<std::int64_t>(), 2);
}

TEST(CrossEntropy, IsZeroWithoutLabels) {
  const at::Tensor logits = random({2, 5}, 3).to(at::kFloat).set_requires_grad(true);
  const layers::CrossEntropy result = layers::cross_entropy(logits, whole({-100, -100}), 5, -100);
  result.loss_sum.backward();
  EXPECT_EQ(result.loss_sum.item<float>(), 0);
  EXPECT_TRUE(at::equal(logits.grad(), at::zeros({2, 5})));
}

// An element next to the label would lose its digits if it were rounded before 1 is taken from it.
TEST(CrossEntropy, HasGradientsOf16BitsThatAreRoundedOnce) {
  const at::Tensor logits = at::tensor({9.0, 0.0, 1.0}, at::kDouble).unsqueeze(0);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor ours = logits.to(type).set_requires_grad(true);
    layers::cross_entropy(ours, whole({0}), 3, -100).loss_sum.backward();
    const at::Tensor exact = at::softmax(logits, 1) - at::tensor({1.0, 0.0, 0.0}, at::kDouble);
    const at::Tensor relative = ((ours.grad().to(at::kDouble) - exact) / exact).abs();
    EXPECT_LE(relative.max().item<double>(), Tolerance({0, 0, 1.01}).of(type));
  }
}

// A word that occurs thousands of times: sums in 16 bits would stop growing.
TEST(Embedding, AddsGradientsOf16BitsInFloat) {
  const std::int64_t count = 5000;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor table = at::zeros({2, 70}, type).set_requires_grad(true);
    const at::Tensor ids = at::zeros({count}, at::kLong);
    layers::gather_rows(table, ids).backward(at::full({count, 70}, 0.5, type));
    EXPECT_TRUE(at::equal(table.grad(), at::stack({at::full({70}, 2500.0), at::zeros({70})}).to(type)));
  }
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  const layers::Sequences in = sequences({256, 256}, {256, 256}, {0, 1});
  const at::Tensor y = layers::dropout(at::ones({512, 1000}), in, {0.1, 1, 1, 1}, layers::MaskKeep::kNothing);
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.1, 0.002);
  EXPECT_NEAR(y.to(at::kDouble).mean().item<double>(), 1.0, 0.002);
}

TEST(Dropout, RefusesCoordinatesThatItsCounterHasNoRoomFor) {
  const auto meta = at::TensorOptions(at::kMeta);
  const std::int64_t slots = (1 << 20) + 1;
  const layers::DropoutSite site{0.1, 1, 1, 1};
  const at::Tensor long_one = at::empty({slots, 8}, meta);
  layers::Sequences in = sequences({slots}, {slots}, {0});
  const auto message = [](const std::function<void()>& run) -> std::string {
    try {
      run();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing thrown";
  };
  EXPECT_THAT(message([&] { layers::dropout(long_one, in, site, layers::MaskKeep::kBits); }),
              ::testing::HasSubstr("1048577 slots"));
  EXPECT_THAT(message([&] { layers::attention(long_one, long_one, long_one, {4}, in, site); }),
              ::testing::HasSubstr("1048577 slots"));
  in = sequences({1}, {1}, {0});
  const at::Tensor wide = at::empty({1, (1 << 23) + 8}, meta);
  EXPECT_THAT(message([&] { layers::dropout_add(wide, wide, in, site, layers::MaskKeep::kBits); }),
              ::testing::HasSubstr("8388616 elements"));
  EXPECT_THAT(message([&] { layers::attention(wide, wide, wide, {8192}, in, site); }),
              ::testing::HasSubstr("8192 heads"));
}

TEST(Dropout, DependsOnSeedStepSiteAndExampleOnly) {
  const auto drop = [](const at::Tensor& x, const layers::Sequences& in, const layers::DropoutSite& site) {
    return layers::dropout(x, in, site, layers::MaskKeep::kBytes);
  };
  const at::Tensor ones = at::ones({4, 64});
  const layers::Sequences in = sequences({4}, {4}, {17});
  const at::Tensor base = drop(ones, in, {0.5, 1, 2, 3});
  EXPECT_TRUE(at::equal(base, drop(ones, in, {0.5, 1, 2, 3})));
  EXPECT_FALSE(at::equal(base, drop(ones, in, {0.5, 9, 2, 3})));
  EXPECT_FALSE(at::equal(base, drop(ones, in, {0.5, 1, 9, 3})));
  EXPECT_FALSE(at::equal(base, drop(ones, in, {0.5, 1, 2, 9})));
  EXPECT_FALSE(at::equal(base, drop(ones, sequences({4}, {4}, {18}), {0.5, 1, 2, 3})));
  // The same example as the second of a batch, with another one before it.
  const layers::Sequences pair = sequences({2, 4}, {2, 4}, {5, 17});
  EXPECT_TRUE(at::equal(base, drop(at::ones({6, 64}), pair, {0.5, 1, 2, 3}).narrow(0, 2, 4)));
}

TEST(Dropout, IsTheSameToTheBitWhateverItKeepsOfTheMask) {
  const layers::Sequences in = sequences({3, 60}, {3, 60}, {8, 9});
  for (const std::int64_t size : {1, 37, 768}) {
    Tensors values, grads;
    for (const auto& [keep, name] : mask_keeps()) {
      const at::Tensor x = random({63, size}, 4).to(at::kFloat).set_requires_grad(true);
      const at::Tensor y = layers::dropout(x, in, {0.1, 1, 1, 1}, keep);
      y.backward(cotangent(y));
      values.push_back(y.detach());
      grads.push_back(x.grad());
    }
    for (std::size_t i = 1; i < values.size(); ++i) {
      EXPECT_TRUE(at::equal(values[i], values[0]));
      EXPECT_TRUE(at::equal(grads[i], grads[0]));
    }
  }
}

}  // namespace
}  // namespace tempo::testing
