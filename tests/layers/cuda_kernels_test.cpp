// Every CUDA kernel, run by the emulator through the operator that launches it, against the operator's CPU loop.
//
// All tensors lie in guarded memory: a write beside a buffer fails the test, an element left out is NaN.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "layers/ops/dispatch.h"
#include "layers/ops/dropout.h"
#include "layers/ops/ops.h"
#include "tests/support/cuda_emulation.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/op_cases.h"
#include "tests/support/op_evaluation.h"

namespace tempo::testing {
namespace {

const GuardedMemory& guarded_memory = GuardedMemory::install();

constexpr unsigned kAnyGrid = std::numeric_limits<unsigned>::max();

/// Runs `work` with the kernels in place of the CPU loops, on grids of at most `max_blocks`, and with the last thread first
/// if `backwards`.
template <typename Work>
auto emulated(Work&& work, unsigned max_blocks = kAnyGrid, bool backwards = false) {
  struct Restore {
    ~Restore() {
      layers::emulating_cuda = false;
      emulator().max_blocks = kAnyGrid;
      emulator().backwards = false;
    }
  } restore;
  layers::emulating_cuda = true;
  emulator().max_blocks = max_blocks;
  emulator().backwards = backwards;
  return work();
}

/// The last place of a float of this size.
double last_place(double value) { return std::ldexp(1.0, std::ilogb(value) - 23); }

bool is_elementwise(const std::string& name) {
  for (const char* op : {"gelu", "dropout", "embedding_sum", "gather_rows"}) {
    if (name.rfind(op, 0) == 0) return true;
  }
  return false;
}

std::vector<OpCase> cases_with_kernels() {
  std::vector<OpCase> cases;
  for (OpCase& op : op_cases()) {
    // ATen's on every device.
    if (op.name.rfind("linear", 0) == 0 || op.name.rfind("qkv_linear", 0) == 0) continue;
    // Of attention there is one form on CUDA so far.
    if (op.name.rfind("attention", 0) == 0 && op.name.rfind("attention_baseline", 0) != 0) continue;
    cases.push_back(std::move(op));
  }
  return cases;
}

class Kernels : public ::testing::TestWithParam<OpCase> {
 protected:
  void TearDown() override {
    EXPECT_EQ(GuardedMemory::num_damaged(), damaged_before_) << "a write outside of a tensor";
  }

  static Result run_kernels(const OpCase& op, unsigned max_blocks = kAnyGrid, bool backwards = false) {
    return emulated([&] { return evaluate(op, op.ours, prepared(op, at::kFloat)); }, max_blocks, backwards);
  }

 private:
  int damaged_before_ = GuardedMemory::num_damaged();
};

TEST_P(Kernels, EqualATen) {
  const OpCase& op = GetParam();
  const Result reference = evaluate(op, op.reference, prepared(op, at::kDouble));
  const Result ours = run_kernels(op);
  const double tolerance = tolerance_of(op.name).float32;
  expect_close(ours.value, reference.value, tolerance, "value");
  for (std::size_t i = 0; i < ours.grads.size(); ++i) {
    expect_close(ours.grads[i], reference.grads[i], tolerance * 4, "gradient of input " + std::to_string(i));
  }
}

TEST_P(Kernels, GiveTheCpusBitsWhereTheyAreElementwise) {
  const OpCase& op = GetParam();
  if (!is_elementwise(op.name)) return;  // sums over a row are added in another order
  const Result loops = evaluate(op, op.ours, prepared(op, at::kFloat));
  const Result kernels = run_kernels(op);
  EXPECT_TRUE(at::equal(kernels.value, loops.value));
  for (std::size_t i = 0; i < loops.grads.size(); ++i)
    EXPECT_TRUE(at::equal(kernels.grads[i], loops.grads[i])) << "input " << i;
}

TEST_P(Kernels, GiveTheSameBitsOnAnyGridAndInAnyOrderOfThreads) {
  const OpCase& op = GetParam();
  const Result wide = run_kernels(op);
  for (const bool backwards : {false, true}) {
    const Result narrow = run_kernels(op, backwards ? 1 : 3, backwards);
    EXPECT_TRUE(at::equal(narrow.value, wide.value));
    for (std::size_t i = 0; i < wide.grads.size(); ++i)
      EXPECT_TRUE(at::equal(narrow.grads[i], wide.grads[i])) << "input " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(cases_with_kernels()),
                         [](const ::testing::TestParamInfo<OpCase>& tested) { return tested.param.name; });

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ThreeTensors layer_norm_parts(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  return layers::find_operator<ThreeTensors(const at::Tensor&, const at::Tensor&, const at::Tensor&, double)>(
             "tempo::layer_norm")
      .call(z, gamma, beta, eps);
}

ThreeTensors layer_norm_grads(const at::Tensor& grad, const at::Tensor& z, const at::Tensor& mean,
                              const at::Tensor& rstd, const at::Tensor& gamma) {
  return layers::find_operator<ThreeTensors(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                            const at::Tensor&)>("tempo::layer_norm_backward")
      .call(grad, z, mean, rstd, gamma);
}

TEST(LayerNormKernels, AddRowsWithinTwoLastPlaces) {
  for (const std::int64_t size : {1, 31, 256, 257, 1024, 4099}) {
    const at::Tensor z = (random({5, size}, 31) + 0.25).to(at::kFloat);
    const at::Tensor ones = at::ones({size});
    const auto [y, mean, rstd] = emulated([&] { return layer_norm_parts(z, ones, at::zeros({size}), 1e-5); });
    const at::Tensor wide = z.to(at::kDouble);
    for (std::int64_t row = 0; row < 5; ++row) {
      const double sum_of_sizes = wide[row].abs().sum().item<double>();
      EXPECT_NEAR(mean[row].item<float>(), wide[row].mean().item<double>(),
                  (2 * last_place(sum_of_sizes)) / static_cast<double>(size))
          << size;
      const double variance =
          wide[row].sub(mean[row].item<double>()).square().mean().item<double>() + static_cast<float>(1e-5);
      const double expected = 1 / std::sqrt(variance);
      EXPECT_NEAR(rstd[row].item<float>(), expected, 2.5 * last_place(expected)) << size;
    }
  }
}

TEST(LayerNormKernels, AddColumnsAsTheCpuDoes) {
  for (const std::int64_t rows :
       {64, 65, 70}) {  // runs of two and of three rows; the last is whole, or short by one, or by two
    const at::Tensor z = random({rows, 300}, 32).to(at::kFloat);
    const at::Tensor grad = random({rows, 300}, 33).to(at::kFloat);
    const at::Tensor gamma = random({300}, 34).to(at::kFloat);
    const auto [y, mean, rstd] = layer_norm_parts(z, gamma, gamma, 1e-12);
    const auto [z_loops, gamma_loops, beta_loops] = layer_norm_grads(grad, z, mean, rstd, gamma);
    const auto [z_kernels, gamma_kernels, beta_kernels] =
        emulated([&, &mean = mean, &rstd = rstd] { return layer_norm_grads(grad, z, mean, rstd, gamma); });
    EXPECT_TRUE(at::equal(gamma_kernels, gamma_loops)) << rows;
    EXPECT_TRUE(at::equal(beta_kernels, beta_loops)) << rows;
    expect_close(z_kernels, z_loops.to(at::kDouble), 1e-6, "gradient of z");
  }
}

TEST(LayerNormKernels, InvertTheOutputAsTheCpuDoes) {
  for (const std::int64_t rows : {64, 70}) {
    const at::Tensor y = random({rows, 300}, 62).to(at::kFloat);
    const at::Tensor grad = random({rows, 300}, 63).to(at::kFloat);
    at::Tensor gamma = random({300}, 64).to(at::kFloat);
    gamma[7] = 0;
    const at::Tensor rstd = at::ones({rows});
    const auto gradients = [&] {
      return layers::find_operator<ThreeTensors(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                const at::Tensor&, const at::Tensor&)>(
                 "tempo::layer_norm_backward_from_output")
          .call(grad, y, rstd, gamma, gamma);
    };
    const auto [z_loops, gamma_loops, beta_loops] = gradients();
    const auto [z_kernels, gamma_kernels, beta_kernels] = emulated(gradients);
    EXPECT_TRUE(at::equal(gamma_kernels, gamma_loops)) << rows;
    EXPECT_TRUE(at::equal(beta_kernels, beta_loops)) << rows;
    expect_close(z_kernels, z_loops.to(at::kDouble), 1e-6, "gradient of z");
  }
}

TEST(LayerNormKernels, GiveTheForwardsBitsAgain) {
  const at::Tensor z = (random({5, 300}, 65) + 0.25).to(at::kFloat);
  const at::Tensor gamma = random({300}, 66).to(at::kFloat);
  emulated([&] {
    const auto [y, mean, rstd] = layer_norm_parts(z, gamma, gamma, 1e-12);
    const at::Tensor again =
        layers::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         const at::Tensor&)>("tempo::layer_norm_apply")
            .call(z, mean, rstd, gamma, gamma);
    EXPECT_TRUE(at::equal(again, y));
  });
}

TEST(LayerNormKernels, JudgeParametersAsTheCpuDoes) {
  at::Tensor gamma = at::ones({700});
  const at::Tensor beta = at::full({700}, -100.0f);
  const auto answer = [&] { return layers::is_norm_invertible(gamma, beta).item<bool>(); };
  EXPECT_TRUE(answer() && emulated(answer));
  for (const double bad : {0.0, 0.999, -0.5, std::nan("")}) {
    gamma[699] = bad;
    EXPECT_FALSE(answer() || emulated(answer)) << bad;
    EXPECT_FALSE(emulated(answer, 1, /*backwards=*/true)) << bad;
  }
}

TEST(DropoutKernels, DropInPlaceAsTheyDoWithAMask) {
  const layers::Sequences in = sequences({3, 1, 5}, {3, 1, 5}, {7, 3, 4000000000});
  const layers::DropoutSite site{0.3, 42, 5, 2};
  const at::Tensor x = random({9, 37}, 67).to(at::kFloat);
  const at::Tensor masked = layers::dropout(x, in, site, layers::MaskKeep::kBits);
  const auto in_place = [&] {
    const at::Tensor y = x.clone();
    layers::drop_rows(y, in, site);
    return y;
  };
  EXPECT_TRUE(at::equal(in_place(), masked));
  EXPECT_TRUE(at::equal(emulated(in_place), masked));
}

TEST(AttentionKernels, DrawTheCpusMasksAndWriteZerosIntoPadding) {
  using FiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
  const layers::Sequences in = sequences({6, 19, 3}, {5, 19, 0}, {4, 4000000000, 2});
  const at::Tensor x = random({28, 12}, 35).to(at::kFloat);
  const auto attend = [&] {
    return layers::find_operator<FiveTensors(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                             const at::Tensor&, c10::IntArrayRef, std::int64_t, bool, std::int64_t,
                                             std::int64_t, double, std::int64_t, std::int64_t, std::int64_t)>(
               "tempo::attention")
        .call(x, x, x, in.lengths, in.ids, in.host_starts, 2, false,
              static_cast<std::int64_t>(layers::AttentionKeep::kDropped),
              static_cast<std::int64_t>(layers::MaskKeep::kBytes), 0.25, 7, 3, 4);
  };
  const auto [context, probabilities, mask, dropped, no_statistics] = emulated(attend);
  const auto [context_loops, probabilities_loops, mask_loops, dropped_loops, none] = attend();
  EXPECT_FALSE(no_statistics.defined() || none.defined());
  EXPECT_TRUE(at::isfinite(probabilities).all().item<bool>());
  const float keep_scale = layers::math::DropoutKey{0, 0, 0, layers::math::dropout_threshold(0.25)}.scale();
  EXPECT_TRUE(at::equal(dropped, at::mul(probabilities, mask) * keep_scale));
  std::int64_t square = 0;
  for (std::int64_t b = 0; b < 3; ++b) {
    const std::int64_t slots = in.host_starts[b + 1] - in.host_starts[b];
    const std::int64_t length = in.lengths[b].item<std::int64_t>();
    const auto block = [&](const at::Tensor& flat) {
      return flat.narrow(0, square, 2 * slots * slots).view({2, slots, slots});
    };
    const auto real = [&](const at::Tensor& flat) { return block(flat).narrow(1, 0, length).narrow(2, 0, length); };
    EXPECT_TRUE(at::equal(real(mask), real(mask_loops)));
    expect_close(real(probabilities), real(probabilities_loops).to(at::kDouble), 2e-7, "probabilities");
    for (const at::Tensor& flat : {probabilities, dropped, mask}) {
      EXPECT_EQ(block(flat).ne(0).sum().item<std::int64_t>(), real(flat).ne(0).sum().item<std::int64_t>()) << "padding";
    }
    square += 2 * slots * slots;
  }
}

TEST(CrossEntropyKernels, CountAsTheCpuDoes) {
  const at::Tensor logits = random({300, 40}, 36).to(at::kFloat);
  at::Tensor labels = logits.narrow(1, 0, 37).argmax(1);
  labels.narrow(0, 0, 100).fill_(5);
  labels[299] = -100;
  const layers::CrossEntropy loops = layers::cross_entropy(logits, labels, 37, -100);
  const layers::CrossEntropy kernels = emulated([&] { return layers::cross_entropy(logits, labels, 37, -100); });
  EXPECT_EQ(kernels.num_correct.item<std::int64_t>(), loops.num_correct.item<std::int64_t>());
  EXPECT_GT(kernels.num_correct.item<std::int64_t>(), 198);
  EXPECT_NEAR(kernels.loss_sum.item<float>(), loops.loss_sum.item<float>(),
              2 * last_place(loops.loss_sum.item<float>()));
}

TEST(CrossEntropyKernels, IgnoreALabelThatIsAlsoAClass) {
  const at::Tensor labels = whole({3, 0, 3, 4});
  const auto grad = [&] {
    const at::Tensor logits = random({4, 9}, 37).to(at::kFloat).set_requires_grad(true);
    layers::cross_entropy(logits, labels, 7, 3).loss_sum.backward();
    return logits.grad();
  };
  const at::Tensor kernels = emulated(grad);
  expect_close(kernels, grad().to(at::kDouble), 1e-6, "gradient");
  EXPECT_EQ(kernels.index_select(0, whole({0, 2})).ne(0).sum().item<std::int64_t>(), 0);
}

/// Tensors of several sizes, one of them empty, with their gradients and moments.
struct OptimizerState {
  Tensors parameters, gradients, moments, variances;

  static OptimizerState random_state() {
    OptimizerState state;
    std::uint64_t seed = 40;
    for (const std::int64_t size : {1, 0, 255, 257, 100003, 200000}) {
      state.parameters.push_back(random({size}, ++seed).to(at::kFloat));
      state.gradients.push_back(random({size}, ++seed, 0.1).to(at::kFloat));
      state.moments.push_back(random({size}, ++seed, 0.1).to(at::kFloat));
      state.variances.push_back(random({size}, ++seed, 0.1).abs().to(at::kFloat));
    }
    return state;
  }
};

using OptimizerStep = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, const at::Tensor&,
                               const at::Tensor&, const layers::AdamStep&);

/// One step by the loops and one by the kernels.
std::pair<OptimizerState, OptimizerState> two_steps(OptimizerStep take, const layers::AdamStep& step,
                                                    std::int64_t number) {
  OptimizerState loops = OptimizerState::random_state();
  OptimizerState kernels = OptimizerState::random_state();
  const at::Tensor scale = at::full({}, 0.375f);
  const at::Tensor count = at::scalar_tensor(number, at::kLong);
  take(loops.parameters, loops.gradients, loops.moments, loops.variances, scale, count, step);
  emulated(
      [&] { take(kernels.parameters, kernels.gradients, kernels.moments, kernels.variances, scale, count, step); });
  return {loops, kernels};
}

void expect_equal(const Tensors& kernels, const Tensors& loops, const char* what) {
  for (std::size_t i = 0; i < loops.size(); ++i)
    EXPECT_TRUE(at::equal(kernels[i], loops[i])) << what << " of tensor " << i;
}

TEST(OptimizerKernels, AdamWGivesTheCpusBits) {
  const auto [loops, kernels] = two_steps(layers::adamw_step_, {1e-2, 0.9, 0.98, 1e-6, 0.1, true}, 3);
  expect_equal(kernels.parameters, loops.parameters, "parameters");
  expect_equal(kernels.gradients, loops.gradients, "gradients");
  expect_equal(kernels.moments, loops.moments, "moments");
  expect_equal(kernels.variances, loops.variances, "variances");
}

TEST(OptimizerKernels, LambGivesTheCpusBitsUpToTheRatio) {
  for (const double weight_decay : {0.0, 0.01}) {
    const auto [loops, kernels] = two_steps(layers::lamb_step_, {1e-2, 0.9, 0.999, 1e-6, weight_decay, true}, 2);
    expect_equal(kernels.gradients, loops.gradients, "directions");
    expect_equal(kernels.moments, loops.moments, "moments");
    expect_equal(kernels.variances, loops.variances, "variances");
    if (weight_decay == 0) expect_equal(kernels.parameters, loops.parameters, "parameters");
    for (std::size_t i = 0; i < loops.parameters.size(); ++i) {
      // The two norms differ in the last bits of a double, so the step may differ in the last bit of a float.
      expect_close(kernels.parameters[i], loops.parameters[i].to(at::kDouble), 1.2e-7,
                   "parameters of tensor " + std::to_string(i));
    }
  }
}

TEST(OptimizerKernels, LambTakesThePlainStepWhereANormIsZero) {
  at::Tensor parameter = at::zeros({1000});
  const at::Tensor gradient = random({1000}, 60).to(at::kFloat);
  const layers::AdamStep step{0.01, 0.9, 0.999, 1e-6, 0.01, true};
  emulated([&] {
    layers::lamb_step_({parameter}, {gradient}, {at::zeros({1000})}, {at::zeros({1000})}, at::ones({}),
                       at::ones({}, at::kLong), step);
  });
  EXPECT_NEAR(parameter.abs().max().item<float>(), 0.01, 1e-5);
}

TEST(OptimizerKernels, ChangeNothingInASkippedStep) {
  for (const OptimizerStep take : {layers::adamw_step_, layers::lamb_step_}) {
    const OptimizerState before = OptimizerState::random_state();
    const auto [loops, kernels] = two_steps(take, {1e-2}, 0);
    for (const OptimizerState* after : {&loops, &kernels}) {
      expect_equal(after->parameters, before.parameters, "parameters");
      expect_equal(after->moments, before.moments, "moments");
      expect_equal(after->variances, before.variances, "variances");
    }
  }
}

TEST(SumsOfSquaresKernels, AddInDouble) {
  const OptimizerState state = OptimizerState::random_state();
  const at::Tensor loops = layers::sums_of_squares(state.parameters);
  const auto by_kernels = [&] { return layers::sums_of_squares(state.parameters); };
  const at::Tensor kernels = emulated(by_kernels);
  EXPECT_TRUE(at::allclose(kernels, loops, 1e-14, 0));
  EXPECT_TRUE(at::equal(emulated(by_kernels, 3), kernels));
  EXPECT_TRUE(at::equal(emulated(by_kernels, 1, /*backwards=*/true), kernels));
}

TEST(AllKernels, BelongToOperatorsThatAreRegisteredForCuda) {
  int num_operators = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("tempo::", 0) != 0) continue;
    ++num_operators;
    for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::Meta}) {
      EXPECT_TRUE(c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), "").hasKernelForDispatchKey(key))
          << name.name;
    }
  }
  EXPECT_GE(num_operators, 16);
}

TEST(AllKernels, RefuseFloat64) {
  const at::Tensor x = random({3, 8}, 61);
  EXPECT_THROW(emulated([&] { return layers::gelu(x, layers::GeluForm::kExact); }), c10::Error);
}

/// The names of the kernels that the sources define.
std::set<std::string> kernels_in_sources() {
  std::set<std::string> names;
  const std::regex definition(R"(__global__ void\s+(?:__launch_bounds__\(\w+\)\s+)?(\w+)\()");
  for (const auto& entry : std::filesystem::directory_iterator(TEMPO_KERNEL_FOLDER)) {
    if (entry.path().extension() != ".cuh") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::sregex_iterator match(text.begin(), text.end(), definition), end; match != end; ++match)
      names.insert((*match)[1]);
  }
  return names;
}

TEST(AllKernels, AreAllRun) {
  for (const OpCase& op : cases_with_kernels())
    emulated([&] { return evaluate(op, op.ours, prepared(op, at::kFloat)); }, 1);
  two_steps(layers::adamw_step_, {}, 1);
  two_steps(layers::lamb_step_, {1e-3, 0.9, 0.999, 1e-6, 0.01, true}, 1);
  emulated([&] { return layers::sums_of_squares({at::ones({3})}); });
  emulated([&] { return layers::is_norm_invertible(at::ones({3}), at::ones({3})); });
  const std::set<std::string> names = kernels_in_sources();
  EXPECT_GE(names.size(), 20u);
  for (const std::string& name : names) EXPECT_EQ(emulator().kernel_names().count(name), 1u) << name;
}

}  // namespace
}  // namespace tempo::testing
