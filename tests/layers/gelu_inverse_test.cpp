// The slope from the output: error bounds over all of its inputs, by the operator's vectorised loops, against double.
#include "layers/math/gelu_inverse.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <string>

#include "layers/ops/ops.h"

namespace tempo::layers::math {
namespace {

template <typename F>
struct GeluFromOutput : ::testing::Test {
  using Form = F;
  static constexpr GeluForm kForm = std::is_same_v<F, GeluExact> ? GeluForm::kExact : GeluForm::kTanh;

  /// The slopes that the operator finds for these outputs, all on one side. In the type of `y`.
  static at::Tensor slopes(const at::Tensor& y, bool right) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("tempo::gelu_backward_from_output", "")
        .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, std::int64_t, std::int64_t)>()
        .call(at::ones_like(y), y, at::full({(y.numel() + 7) / 8}, right ? 255 : 0, at::kByte),
              static_cast<std::int64_t>(kForm), static_cast<std::int64_t>(MaskKeep::kBits));
  }
};

using Forms = ::testing::Types<GeluExact, GeluTanh>;
TYPED_TEST_SUITE(GeluFromOutput, Forms);

/// Every stride-th float from `from` towards `to`, both of one sign, by their bits.
struct FloatRange {
  std::int64_t first, step, count;

  FloatRange(float from, float to, std::int64_t stride)
      : first(bits_of(from)),
        step(bits_of(to) < bits_of(from) ? -stride : stride),
        count(std::abs(static_cast<std::int64_t>(bits_of(to)) - first) / stride + 1) {}

  at::Tensor floats(std::int64_t begin, std::int64_t end) const {
    at::Tensor floats = at::empty({end - begin});
    for (std::int64_t i = begin; i < end; ++i)
      floats.mutable_data_ptr<float>()[i - begin] = float_from_bits(static_cast<std::uint32_t>(first + i * step));
    return floats;
  }
};

at::Tensor floats_between(float from, float to, std::int64_t stride) {
  const FloatRange range(from, to, stride);
  return range.floats(0, range.count);
}

/// Largest error of the slope of outputs, which are taken as exact. NaN is the largest.
template <typename Test>
double largest_error(const FloatRange& range, bool right) {
  constexpr std::int64_t kAtATime = 1 << 16;
  const auto of_pieces = [&](std::int64_t begin_piece, std::int64_t end_piece, double largest) {
    for (std::int64_t piece = begin_piece; piece < end_piece; ++piece) {
      const at::Tensor y = range.floats(piece * kAtATime, std::min((piece + 1) * kAtATime, range.count));
      const at::Tensor slope = Test::slopes(y, right);
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        const double exact =
            GeluInverse<typename Test::Form>::slope(static_cast<double>(y.const_data_ptr<float>()[i]), right);
        const double error = std::fabs(slope.const_data_ptr<float>()[i] - exact);
        largest = error <= largest ? largest : error;
        if (std::isnan(error)) return error;
      }
    }
    return largest;
  };
  return at::parallel_reduce(0, (range.count + kAtATime - 1) / kAtATime, 1, 0.0, of_pieces,
                             [](double a, double b) { return a <= b ? b : a; });
}

/// TEMPO_GELU_STRIDE=1 checks every float there is, in some minutes.
std::int64_t stride_of_test() {
  const char* given = std::getenv("TEMPO_GELU_STRIDE");
  return given == nullptr ? 2999 : std::stoll(given);
}

// Which x a stored y stands for is not asked here: given y, the slope is right, next to the minimum as well.
TYPED_TEST(GeluFromOutput, IsRightForEveryOutputNearTheMinimum) {
  const auto lowest = static_cast<float>(TypeParam::value(TypeParam::Fit::kMinX));
  for (const bool right : {false, true}) {
    const FloatRange y(lowest, lowest + 1.0f / 64, 1);
    EXPECT_GT(y.count, 1'000'000);
    EXPECT_LE(largest_error<TestFixture>(y, right), 1e-6) << (right ? "right" : "left");
  }
}

TYPED_TEST(GeluFromOutput, IsRightForOutputsOfAllSizes) {
  const std::int64_t stride = stride_of_test();  // of 1.04e9 negative and 2.14e9 positive outputs
  const auto lowest = static_cast<float>(TypeParam::value(TypeParam::Fit::kMinX));
  EXPECT_LE(largest_error<TestFixture>(FloatRange(lowest, -1e-45f, stride), false), 1e-6);
  EXPECT_LE(largest_error<TestFixture>(FloatRange(lowest, -1e-45f, stride), true), 1e-6);
  EXPECT_LE(largest_error<TestFixture>(FloatRange(1e-45f, FLT_MAX, stride), true), 1e-6);
}

TYPED_TEST(GeluFromOutput, IsNeverNaNAndStaysWithinTheRangeOfSlopes) {
  constexpr std::int64_t kStride = 997;
  const at::Tensor negative = floats_between(-0.1702f, -0.0f, kStride);
  const at::Tensor positive = floats_between(0.0f, INFINITY, kStride);
  const at::Tensor left = TestFixture::slopes(negative, false);
  EXPECT_LE(left.max().template item<float>(), 0.0f);  // a NaN would fail each of these
  EXPECT_GE(left.min().template item<float>(), -0.13f);
  for (const at::Tensor& y : {negative, positive}) {
    const at::Tensor right = TestFixture::slopes(y, true);
    EXPECT_LE(right.max().template item<float>(), 1.13f);
    EXPECT_GE(right.min().template item<float>(), 0.0f);
  }
  // No x has such an output left of the minimum.
  EXPECT_FALSE(TestFixture::slopes(positive.clamp_max(3e38f), false).isnan().any().template item<bool>());
}

TYPED_TEST(GeluFromOutput, HasExactEnds) {
  using Inverse = GeluInverse<TypeParam>;
  EXPECT_EQ(Inverse::slope(INFINITY, true), 1.0f);
  EXPECT_EQ(Inverse::slope(1e30f, true), 1.0f);
  EXPECT_EQ(Inverse::slope(0.0f, false), 0.0f);
  EXPECT_EQ(Inverse::slope(-0.0f, false), 0.0f);
  EXPECT_EQ(Inverse::slope(-0.1702f, true), 0.0f);
  EXPECT_EQ(Inverse::slope(-0.1702f, false), 0.0f);
  EXPECT_NEAR(Inverse::slope(0.0f, true), 0.5f, 3e-7);
  for (const bool right : {false, true}) {
    EXPECT_TRUE(std::isnan(Inverse::slope(NAN, right)));
    EXPECT_TRUE(std::isnan(Inverse::slope(static_cast<double>(NAN), right)));
  }
  EXPECT_FALSE(Inverse::is_right(NAN));
  EXPECT_TRUE(Inverse::is_right(static_cast<float>(TypeParam::Fit::kMinX) + 1e-7f));
  EXPECT_FALSE(Inverse::is_right(static_cast<float>(TypeParam::Fit::kMinX) - 1e-7f));
}

TYPED_TEST(GeluFromOutput, InvertsInDouble) {
  using Inverse = GeluInverse<TypeParam>;
  EXPECT_NEAR(TypeParam::value_and_slope(TypeParam::Fit::kMinX).slope, 0, 1e-15);
  double worst = 0;
  for (int i = -80000; i <= 80000; ++i) {
    const double x = i * 1e-4;
    const double slope = Inverse::slope(Inverse::value(x), Inverse::is_right(x));
    worst = std::max(worst, std::fabs(slope - TypeParam::value_and_slope(x).slope));
  }
  EXPECT_LT(worst, 2e-8);
  for (const double x : {-37.0, -20.0, 12.0, 1e3, 1e300}) {
    EXPECT_NEAR(Inverse::slope(Inverse::value(x), Inverse::is_right(x)), x > 0 ? 1 : 0, 1e-15) << x;
  }
}

// What 16 bits of output can tell is all there is: the bounds are the distance to the next output's slope (docs/operators.md).
TYPED_TEST(GeluFromOutput, GivesTheSlopeOfEvery16BitInputWithinItsBounds) {
  for (const auto& [type, bound] : {std::pair{at::kBFloat16, 1.6e-2}, std::pair{at::kHalf, 7.2e-3}}) {
    const at::Tensor bits = at::arange(-32768, 32768, at::kShort);
    const at::Tensor all = bits.view(type);
    const at::Tensor x = all.index({at::isfinite(all)}).contiguous();
    EXPECT_GT(x.numel(), 60'000);
    at::Tensor input = x.clone().set_requires_grad(true);
    gelu(input, TestFixture::kForm, GeluKeep::kOutput).sum().backward();
    double worst = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double exact = TypeParam::value_and_slope(x[i].item<double>()).slope;
      const double error = std::fabs(input.grad()[i].template item<double>() - exact);
      worst = error <= worst ? worst : error;
    }
    EXPECT_LE(worst, bound) << type;
    EXPECT_GE(worst, bound / 4) << type << ": the bound is loose";
  }
}

// What training sees: x in fp32, its output kept in fp32, the slope from that, against the slope of x in double.
TYPED_TEST(GeluFromOutput, GivesTheSlopeOfTheInputWithinItsBounds) {
  using Inverse = GeluInverse<TypeParam>;
  double far = 0, near = 0;
  for (int i = -4'000'000; i <= 4'000'000; ++i) {
    const auto x = static_cast<float>(i * 2e-6);
    const double error = std::fabs(Inverse::slope(Inverse::value(x), Inverse::is_right(x)) -
                                   TypeParam::value_and_slope(static_cast<double>(x)).slope);
    double& worst = std::fabs(x - TypeParam::Fit::kMinX) < 0.01 ? near : far;
    worst = error <= worst ? worst : error;
  }
  EXPECT_LE(far, 1.5e-6);
  EXPECT_LE(near, 6e-5);
}

TYPED_TEST(GeluFromOutput, KeepsOutputsNearTheMinimumToHalfALastPlace) {
  using Inverse = GeluInverse<TypeParam>;
  const auto centre = static_cast<float>(TypeParam::Fit::kMinX);
  double worst = 0, elsewhere = 0;
  for (float x = centre - 0.12499f; x < centre + 0.12499f; x = std::nextafter(x, 1.0f))
    worst = std::max(worst, std::fabs(Inverse::value(x) - TypeParam::value(static_cast<double>(x))));
  EXPECT_LE(worst, 0.55 * std::ldexp(1.0, -26));  // a last place of outputs in (-0.25, -0.125]
  for (int i = -800'000; i <= 800'000; ++i) {
    const auto x = static_cast<float>(i * 1e-5);
    const double exact = TypeParam::value(static_cast<double>(x));
    elsewhere = std::max(elsewhere, std::fabs(Inverse::value(x) - exact) / std::max(1e-3, std::fabs(exact)));
  }
  EXPECT_LT(elsewhere, 1.1e-6);
}

}  // namespace
}  // namespace tempo::layers::math
