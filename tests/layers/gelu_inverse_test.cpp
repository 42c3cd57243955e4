// The slope from the output: error bounds over all of its inputs, by the operator's vectorised loops, against double.
#include "layers/math/gelu_inverse.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/ops/ops.h"

namespace tempo::layers::math {
namespace {

template <typename F>
struct GeluFromOutput : ::testing::Test {
  using Form = F;
  static constexpr GeluForm kForm = std::is_same_v<F, GeluExact> ? GeluForm::kExact : GeluForm::kTanh;

  /// The slopes that the operator finds for these outputs, all on one side.
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
at::Tensor floats_between(float from, float to, std::int64_t stride) {
  const std::int64_t first = bits_of(from);
  const std::int64_t last = bits_of(to);
  const std::int64_t count = std::abs(last - first) / stride + 1;
  at::Tensor floats = at::empty({count});
  for (std::int64_t i = 0; i < count; ++i)
    floats.mutable_data_ptr<float>()[i] =
        float_from_bits(static_cast<std::uint32_t>(first + (last < first ? -i : i) * stride));
  return floats;
}

/// Largest error of the slope of outputs `y`, which are taken as exact.
template <typename Test>
double largest_error(const at::Tensor& y, bool right) {
  const at::Tensor slope = Test::slopes(y, right);
  double largest = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const double exact =
        GeluInverse<typename Test::Form>::slope(static_cast<double>(y.const_data_ptr<float>()[i]), right);
    const double error = std::fabs(slope.const_data_ptr<float>()[i] - exact);
    largest = error <= largest ? largest : error;  // NaN becomes the largest and stays
    if (std::isnan(error)) return error;
  }
  return largest;
}

// Which x a stored y stands for is not asked here: given y, the slope is right, next to the minimum as well.
TYPED_TEST(GeluFromOutput, IsRightForEveryOutputNearTheMinimum) {
  const auto lowest = static_cast<float>(TypeParam::value(TypeParam::Fit::kMinX));
  for (const bool right : {false, true}) {
    const at::Tensor y = floats_between(lowest, lowest + 1.0f / 64, 1);
    EXPECT_GT(y.numel(), 1'000'000);
    EXPECT_LE(largest_error<TestFixture>(y, right), 1e-6) << (right ? "right" : "left");
  }
}

TYPED_TEST(GeluFromOutput, IsRightForOutputsOfAllSizes) {
  constexpr std::int64_t kStride = 2999;  // of 1.04e9 negative and 1.09e9 positive outputs
  const auto lowest = static_cast<float>(TypeParam::value(TypeParam::Fit::kMinX));
  EXPECT_LE(largest_error<TestFixture>(floats_between(lowest, -1e-44f, kStride), false), 1e-6);
  EXPECT_LE(largest_error<TestFixture>(floats_between(lowest, -1e-44f, kStride), true), 1e-6);
  EXPECT_LE(largest_error<TestFixture>(floats_between(1e-44f, 3e38f, kStride), true), 1e-6);
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
