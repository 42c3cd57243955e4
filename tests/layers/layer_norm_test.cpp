// What LayerNorm keeps, how well its output is inverted, and the operators that make its output again.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "layers/ops/ops.h"
#include "tests/support/op_cases.h"
#include "tests/support/op_evaluation.h"
#include "train/memory_tracker.h"

namespace tempo::testing {
namespace {

using layers::NormKeep;

constexpr double kUnitRoundoff = 0x1p-24;  // of float

at::Tensor floats(std::vector<double> values) { return at::tensor(values, at::kDouble).to(at::kFloat); }

bool invertible(const at::Tensor& gamma, const at::Tensor& beta) {
  return layers::is_norm_invertible(gamma, beta).item<bool>();
}

/// The gradients of z, gamma and beta for one cotangent.
Tensors norm_gradients(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta, NormKeep keep) {
  Tensors leaves;
  for (const at::Tensor& tensor : {z, gamma, beta}) leaves.push_back(tensor.detach().clone().set_requires_grad(true));
  const at::Tensor y = layers::layer_norm(leaves[0], leaves[1], leaves[2], 1e-12, keep);
  y.backward(cotangent(y));
  return {leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

Tensors reference_gradients(const at::Tensor& z, const at::Tensor& gamma, const at::Tensor& beta) {
  Tensors leaves;
  for (const at::Tensor& tensor : {z, gamma, beta}) leaves.push_back(tensor.to(at::kDouble).set_requires_grad(true));
  const at::Tensor y = at::layer_norm(leaves[0], {z.size(1)}, leaves[1], leaves[2], 1e-12);
  y.backward(cotangent(y).to(at::kDouble));
  return {leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

// Gamma as in the case that other implementations get wrong: zero, tiny, negative and mixed.
const std::vector<double> kAwkwardGamma = {0, 1e-8, -0.5, 1, 0, 2, -1e-4, 1e-3};
const std::vector<double> kNonZeroGamma = {1e-8, 1e-8, -0.5, 1, -3, 2, -1e-4, 1e-3};

TEST(NormGuard, KnowsWhereTheOutputTellsTheInput) {
  const at::Tensor zeros = at::zeros({8});
  EXPECT_FALSE(invertible(floats(kAwkwardGamma), zeros));
  EXPECT_TRUE(invertible(floats(kNonZeroGamma), zeros)) << "a small gamma alone costs nothing";
  EXPECT_FALSE(invertible(floats(kNonZeroGamma), at::full({8}, 1e-3f)));
  EXPECT_TRUE(invertible(floats({0.01, -0.01}), floats({1, -1})));
  EXPECT_FALSE(invertible(floats({0.01, -0.01}), floats({1, 1.01})));
  EXPECT_FALSE(invertible(floats({0.01, -0.01}), floats({-1.01, 1})));
  EXPECT_FALSE(invertible(at::zeros({3}), at::zeros({3})));
  EXPECT_FALSE(invertible(floats({1, 1e-39}), floats({0, 0}))) << "gamma x_hat would be subnormal";
  EXPECT_FALSE(invertible(floats({1, std::nan("")}), floats({0, 0})));
  EXPECT_FALSE(invertible(floats({1, 1}), floats({std::nan(""), 0})));
  EXPECT_FALSE(invertible(at::tensor({1.0, 0.0}, at::kDouble), at::zeros({2}, at::kDouble)));
}

TEST(NormGuard, AsksForMoreIn16Bits) {
  const at::Tensor gamma = floats({1, -0.5});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(invertible(gamma.to(type), (gamma * 4).to(type)));
    EXPECT_FALSE(invertible(gamma.to(type), (gamma * 4.125).to(type)));
    EXPECT_FALSE(invertible(floats({1, 0}).to(type), at::zeros({2}, type)));
  }
  EXPECT_TRUE(invertible(floats({1, 1e-20}).to(at::kBFloat16), at::zeros({2}, at::kBFloat16)));
  EXPECT_TRUE(invertible(floats({1, 7e-5}).to(at::kHalf), at::zeros({2}, at::kHalf)));
  EXPECT_FALSE(invertible(floats({1, 5e-5}).to(at::kHalf), at::zeros({2}, at::kHalf)))
      << "gamma x_hat would be subnormal";
}

TEST(NormGuard, SaysNothingToAutograd) {
  const at::Tensor gamma = at::ones({4}).set_requires_grad(true);
  const at::Tensor answer = layers::is_norm_invertible(gamma, at::zeros({4}));
  EXPECT_FALSE(answer.requires_grad());
  EXPECT_EQ(answer.scalar_type(), at::kBool);
  const at::Tensor meta = at::ones({4}, at::kMeta);
  EXPECT_TRUE(layers::is_norm_invertible(meta, meta).is_meta());
}

TEST(LayerNorm, GivesTheSameValueWhateverItKeeps) {
  const at::Tensor z = random({9, 37}, 1).to(at::kFloat);
  const at::Tensor gamma = random({37}, 2).to(at::kFloat);
  EXPECT_TRUE(at::equal(layers::layer_norm(z, gamma, gamma, 1e-5, NormKeep::kInput),
                        layers::layer_norm(z, gamma, gamma, 1e-5, NormKeep::kOutput)));
}

TEST(LayerNorm, IsRightForAwkwardGammaWhenItKeepsItsInput) {
  const at::Tensor z = random({40, 8}, 3).to(at::kFloat);
  for (const double beta : {0.0, 0.3}) {
    for (const std::vector<double>& gamma : {kAwkwardGamma, kNonZeroGamma, std::vector<double>(8, 0)}) {
      const at::Tensor betas = at::full({8}, beta).to(at::kFloat);
      const Tensors ours = norm_gradients(z, floats(gamma), betas, NormKeep::kInput);
      const Tensors reference = reference_gradients(z, floats(gamma), betas);
      for (int i = 0; i < 3; ++i) expect_close(ours[i], reference[i], 2e-6, "gradient " + std::to_string(i));
    }
  }
}

TEST(LayerNorm, IsRightForTinyAndNegativeGammaWhenItKeepsItsOutput) {
  const at::Tensor z = random({40, 8}, 3).to(at::kFloat);
  const at::Tensor gamma = floats(kNonZeroGamma);
  for (const double ratio : {0.0, 2.0, -90.0}) {
    const at::Tensor beta = gamma * ratio;
    ASSERT_TRUE(invertible(gamma, beta));
    const Tensors ours = norm_gradients(z, gamma, beta, NormKeep::kOutput);
    const Tensors reference = reference_gradients(z, gamma, beta);
    // Forty rows, each with a cotangent below 4: dgamma is off by at most 160 errors of x_hat.
    const double tolerance = std::abs(ratio) > 2 ? 1e-4 : 2e-6;
    for (int i = 0; i < 3; ++i) expect_close(ours[i], reference[i], tolerance, "gradient " + std::to_string(i));
  }
}

TEST(LayerNorm, IsFiniteAndRightElsewhereWhereGammaIsZero) {
  const at::Tensor z = random({40, 8}, 3).to(at::kFloat);
  for (const double beta : {0.0, 1e-9}) {
    const at::Tensor betas = at::full({8}, beta).to(at::kFloat);
    const at::Tensor gamma = floats(kAwkwardGamma);
    const Tensors ours = norm_gradients(z, gamma, betas, NormKeep::kOutput);
    const Tensors reference = reference_gradients(z, gamma, betas);
    for (const at::Tensor& grad : ours) EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
    for (const std::int64_t channel : {1, 2, 3, 5, 6, 7}) {
      expect_close(ours[0].select(1, channel), reference[0].select(1, channel), 2e-6, "gradient of z");
      expect_close(ours[1][channel], reference[1][channel], 2e-6, "gradient of gamma");
    }
    expect_close(ours[2], reference[2], 2e-6, "gradient of beta");
    EXPECT_EQ(ours[1][0].item<float>(), 0);
  }
  const Tensors all_zero = norm_gradients(z, at::zeros({8}), at::ones({8}), NormKeep::kOutput);
  for (const at::Tensor& grad : all_zero) EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
  EXPECT_TRUE(at::equal(all_zero[0], at::zeros({40, 8})));
}

TEST(LayerNorm, InvertsItsOutputWithinTheBound) {
  // One row and a cotangent of ones: the gradient of gamma is x_hat, as the forward pass had it or as the output tells it.
  const std::int64_t size = 20000;
  const at::Tensor z = random({1, size}, 5).to(at::kFloat);
  const auto x_hat = [&](const at::Tensor& gamma, const at::Tensor& beta, NormKeep keep) {
    const at::Tensor leaf = gamma.clone().set_requires_grad(true);
    layers::layer_norm(z, leaf, beta, 1e-12, keep).sum().backward();
    return leaf.grad().to(at::kDouble);
  };
  for (const double gamma_scale : {1.0, 1e-6, -3.0, 1e-30}) {
    for (const double ratio : {0.0, 1e-3, 0.1, 1.0, -10.0, 100.0}) {
      const at::Tensor gamma = ((random({size}, 6).abs() + 0.5) * gamma_scale).to(at::kFloat);
      const at::Tensor beta = (gamma.to(at::kDouble) * (ratio * 0.999999)).to(at::kFloat);
      ASSERT_TRUE(invertible(gamma, beta)) << gamma_scale << " " << ratio;
      const at::Tensor exact = x_hat(gamma, beta, NormKeep::kInput);
      const at::Tensor error = (x_hat(gamma, beta, NormKeep::kOutput) - exact).abs();
      // One rounding of y, one of y - beta, one of the quotient; the products of two of them are beyond the sixth digit.
      const at::Tensor bound = kUnitRoundoff * (3 * exact.abs() + std::abs(ratio));
      EXPECT_LE((error / bound).max().item<double>(), 1 + 1e-6) << gamma_scale << " " << ratio;
    }
  }
}

TEST(LayerNorm, InvertsItsOutputOf16BitsWithinTheBound) {
  const std::int64_t size = 20000;
  for (const auto& [type, unit] : {std::pair{at::kBFloat16, 0x1p-8}, std::pair{at::kHalf, 0x1p-11}}) {
    const at::Tensor z = random({1, size}, 5).to(type);
    const at::Tensor x_hat = at::layer_norm(z.to(at::kDouble), {size}, {}, {}, 1e-12).squeeze(0);
    for (const double gamma_scale : {1.0, -3.0, 2e-4}) {
      for (const double ratio : {0.0, 0.5, -2.0, 4.0}) {
        const at::Tensor gamma = ((random({size}, 6).abs() + 0.5) * gamma_scale).to(type).set_requires_grad(true);
        const at::Tensor beta = (gamma.detach().to(at::kDouble) * ratio * 0.99).to(type);
        ASSERT_TRUE(invertible(gamma, beta)) << type << gamma_scale << " " << ratio;
        layers::layer_norm(z, gamma, beta, 1e-12, NormKeep::kOutput).sum().backward();
        const at::Tensor error = (gamma.grad().to(at::kDouble) - x_hat).abs();
        // One rounding of y, one of the gradient; fp16's smallest numbers are what a gamma of 2e-4 leaves.
        const at::Tensor bound =
            unit * (2.1 * x_hat.abs() + std::abs(ratio)) + (type == at::kHalf ? 3e-8 / 1e-4 : 1e-6);
        EXPECT_LE((error / bound).max().item<double>(), 1) << type << " " << gamma_scale << " " << ratio;
      }
    }
  }
}

struct ProjectionCase {
  layers::Sequences in = sequences({30, 1, 39}, {30, 1, 39}, {7, 3, 4000000000});
  layers::DropoutSite site;
  Tensors inputs;  // z, gamma, beta, then weights and biases of Q, K and V

  explicit ProjectionCase(double drop_probability) : site{drop_probability, 42, 5, 0} {
    const std::int64_t size = 48;
    inputs = {random({70, size}, 11), random({size}, 12), random({size}, 13)};
    inputs[1][3] = 0;  // keeping z, LayerNorm bears it
    for (const std::uint64_t seed : {14, 16, 18}) {
      inputs.push_back(random({size, size}, seed));
      inputs.push_back(random({size}, seed + 1));
    }
    for (at::Tensor& input : inputs) input = input.to(at::kFloat);
  }

  layers::QkvParameters qkv(const Tensors& leaves) const {
    return {leaves[3], leaves[4], leaves[5], leaves[6], leaves[7], leaves[8]};
  }

  /// Values, then gradients, of `work`, whose results are y and projections of it.
  Tensors evaluated(const std::function<Tensors(const Tensors&)>& work) const {
    Tensors leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.clone().set_requires_grad(true));
    Tensors results = work(leaves);
    const at::Tensor all = at::cat(results, 1);  // y's other reader: a residual's place
    all.backward(cotangent(all));
    for (at::Tensor& result : results) result = result.detach();
    for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros({}));
    return results;
  }
};

TEST(LayerNormQkv, GivesTheBitsOfItsParts) {
  for (const double drop_probability : {0.0, 0.3}) {
    const ProjectionCase tested(drop_probability);
    const Tensors fused = tested.evaluated([&](const Tensors& in) -> Tensors {
      const auto r = layers::layer_norm_qkv(in[0], in[1], in[2], 1e-12, tested.qkv(in), tested.in, tested.site);
      return {r.y, r.q, r.k, r.v};
    });
    const Tensors apart = tested.evaluated([&](const Tensors& in) -> Tensors {
      const at::Tensor normed = layers::layer_norm(in[0], in[1], in[2], 1e-12);
      const at::Tensor y = layers::dropout(normed, tested.in, tested.site, layers::MaskKeep::kNothing);
      const auto [q, k, v] = layers::qkv_linear(y, tested.qkv(in));
      return {y, q, k, v};
    });
    ASSERT_EQ(fused.size(), 13U);
    for (std::size_t i = 0; i < fused.size(); ++i)
      EXPECT_TRUE(at::equal(fused[i], apart[i])) << "tensor " << i << ", dropped " << drop_probability;
  }
}

TEST(LayerNormLinear, GivesTheBitsOfItsParts) {
  const ProjectionCase tested(0);
  const Tensors fused = tested.evaluated([&](const Tensors& in) -> Tensors {
    const auto [y, out] = layers::layer_norm_linear(in[0], in[1], in[2], 1e-12, in[3], in[4]);
    return {y, out};
  });
  const Tensors apart = tested.evaluated([&](const Tensors& in) -> Tensors {
    const at::Tensor y = layers::layer_norm(in[0], in[1], in[2], 1e-12);
    return {y, layers::linear(y, in[3], in[4])};
  });
  for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_TRUE(at::equal(fused[i], apart[i])) << "tensor " << i;
}

TEST(LayerNormLinear, DoesWithoutTheGradientOfAResult) {
  const ProjectionCase tested(0);
  const auto gradients = [&](bool of_output) {
    Tensors leaves;
    for (const at::Tensor& input : tested.inputs) leaves.push_back(input.clone().set_requires_grad(true));
    const auto [y, out] = layers::layer_norm_linear(leaves[0], leaves[1], leaves[2], 1e-12, leaves[3], leaves[4]);
    (of_output ? out : y).sum().backward();
    return Tensors{leaves[0].grad(), leaves[1].grad(), leaves[3].grad()};
  };
  EXPECT_TRUE(gradients(true)[2].defined());
  const Tensors of_y = gradients(false);
  EXPECT_FALSE(of_y[2].defined());
  EXPECT_TRUE(of_y[0].defined());
}

TEST(LayerNormQkv, HasGradientsOfZeroWithoutRows) {
  const layers::Sequences none = sequences({0}, {0}, {1});
  Tensors leaves;
  for (const at::Tensor& input : ProjectionCase(0).inputs) leaves.push_back(input.clone().set_requires_grad(true));
  const at::Tensor z = at::empty({0, 48}).set_requires_grad(true);
  const auto r =
      layers::layer_norm_qkv(z, leaves[1], leaves[2], 1e-12,
                             {leaves[3], leaves[4], leaves[5], leaves[6], leaves[7], leaves[8]}, none, {0.3, 1, 1, 0});
  (r.y.sum() + r.q.sum() + r.k.sum() + r.v.sum()).backward();
  EXPECT_EQ(z.grad().sizes(), z.sizes());
  for (std::size_t i = 1; i < leaves.size(); ++i)
    EXPECT_TRUE(at::equal(leaves[i].grad(), at::zeros_like(leaves[i]))) << i;
}

/// Bytes that the graph of `work(z)` keeps alive when its results and z itself are given up.
template <typename Work>
std::int64_t kept_bytes(const at::Tensor& leaf, Work&& work) {
  const std::int64_t before = train::cpu_memory_use().live_bytes;
  std::shared_ptr<torch::autograd::Node> graph;
  {
    const at::Tensor z = at::add(leaf, 1);  // its own graph keeps nothing
    graph = work(z).grad_fn();
  }
  return train::cpu_memory_use().live_bytes - before;
}

TEST(LayerNorm, KeepsWhatItSays) {
  train::install_memory_tracker();
  const std::int64_t rows = 13;
  const std::int64_t size = 48;
  const std::int64_t unit = rows * size * 4;
  const ProjectionCase tested(0.3);
  Tensors in;
  for (const at::Tensor& input : tested.inputs) in.push_back(input.clone().set_requires_grad(true));
  const at::Tensor leaf = at::ones({rows, size}).set_requires_grad(true);
  const layers::Sequences one = sequences({rows}, {rows}, {1});
  const auto norm = [&](NormKeep keep) {
    return [&, keep](const at::Tensor& z) { return layers::layer_norm(z, in[1], in[2], 1e-12, keep); };
  };
  EXPECT_EQ(kept_bytes(leaf, norm(NormKeep::kInput)), unit + 2 * rows * 4) << "z, mean, rstd";
  EXPECT_EQ(kept_bytes(leaf, norm(NormKeep::kOutput)), unit + rows * 4) << "y, rstd";
  const auto with_linear = [&](NormKeep keep) {
    return [&, keep](const at::Tensor& z) {
      return layers::linear(layers::layer_norm(z, in[1], in[2], 1e-12, keep), in[3], in[4]);
    };
  };
  EXPECT_EQ(kept_bytes(leaf, with_linear(NormKeep::kInput)), 2 * unit + 2 * rows * 4) << "z and y";
  EXPECT_EQ(kept_bytes(leaf, with_linear(NormKeep::kOutput)), unit + rows * 4) << "y once";
  const auto fused = [&](const at::Tensor& z) {
    return std::get<1>(layers::layer_norm_linear(z, in[1], in[2], 1e-12, in[3], in[4]));
  };
  EXPECT_EQ(kept_bytes(leaf, fused), unit + 2 * rows * 4) << "z, mean, rstd, and nothing of y";
  for (const double drop_probability : {0.0, 0.3}) {
    const auto qkv = [&](const at::Tensor& z) {
      return layers::layer_norm_qkv(z, in[1], in[2], 1e-12, tested.qkv(in), one, {drop_probability, 1, 1, 0}).q;
    };
    EXPECT_EQ(kept_bytes(leaf, qkv), unit + 2 * rows * 4) << "dropped " << drop_probability;
  }
}

}  // namespace
}  // namespace tempo::testing
