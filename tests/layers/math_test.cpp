#include <gtest/gtest.h>

#include <cmath>

#include "layers/math/dropout.h"
#include "layers/math/gelu.h"
#include "layers/math/layer_norm.h"
#include "layers/ops/dropout_bits.h"

namespace tempo::layers::math {
namespace {

// Known answers of philox4x32_10 published with Random123 (kat_vectors).
TEST(Philox, GivesThePublishedAnswers) {
  struct Known {
    std::uint64_t key;
    std::uint32_t counter[4];
    std::uint32_t words[4];
  };
  const Known known[] = {
      {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {0xffffffffffffffff,
       {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822,
       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& k : known) {
    const PhiloxWords words = philox(k.key, k.counter[0], k.counter[1], k.counter[2], k.counter[3]);
    for (int w = 0; w < 4; ++w) EXPECT_EQ(words.word[w], k.words[w]);
  }
}

// The counter layout of docs/operators.md: whoever changes it breaks every resumed run.
TEST(Dropout, PutsItsCoordinatesWhereTheDocumentSays) {
  const DropoutKey key{0x123456789abcdef0, 7, 3, 32768};
  const PhiloxWords words = dropout_words(key, 5, 2, 100, 1000000);
  const PhiloxWords direct = philox(0x123456789abcdef0, 5u | 3u << 20, 100u | 2u << 20, 1000000u, 7u);
  for (int w = 0; w < 4; ++w) EXPECT_EQ(words.word[w], direct.word[w]);
  // Computed apart from this code, in Python.
  const std::uint32_t known[] = {0xe5534556, 0x06557fff, 0x8f3d9275, 0x78ee08fe};
  for (int w = 0; w < 4; ++w) EXPECT_EQ(words.word[w], known[w]);
  EXPECT_EQ(dropout_keeps(key, words, 0), (words.word[0] & 0xffff) < 32768);
  EXPECT_EQ(dropout_keeps(key, words, 1), (words.word[0] >> 16) < 32768);
  EXPECT_EQ(dropout_keeps(key, words, 7), (words.word[3] >> 16) < 32768);
}

TEST(Dropout, DrawsTheSameWordsOnEveryProcessor) {
  const DropoutKey key{0xFEDCBA9876543210u, 0xFFFFFFFEu, 4095, 1};
  for (const layers::DrawBlocks draw : layers::draw_versions()) {
    for (const std::uint32_t num_blocks : {8u, 24u, 1024u}) {
      std::vector<std::uint32_t> words(num_blocks * 4);
      draw(key, 4095, 0xFFFFF, 0x87654321u, num_blocks, words.data());
      for (std::uint32_t block = 0; block < num_blocks; ++block) {
        const PhiloxWords expected = dropout_words(key, block, 4095, 0xFFFFF, 0x87654321u);
        for (int w = 0; w < 4; ++w) ASSERT_EQ(words[4 * block + w], expected.word[w]) << block;
      }
    }
  }
}

TEST(Dropout, ScalesByTheRoundedKeepProbability) {
  EXPECT_EQ(dropout_threshold(0.1), 58982u);  // 0.9 x 65536 = 58982.4
  EXPECT_EQ(dropout_threshold(0.5), 32768u);
  EXPECT_EQ(dropout_threshold(0.0), 65536u);
  EXPECT_EQ(dropout_threshold(1 - 1e-9), 1u);
  EXPECT_FLOAT_EQ((DropoutKey{0, 0, 0, 58982}).scale(), 65536.0f / 58982.0f);
}

// Values of cases.md, case 17.
TEST(Gelu, GivesBothFormsKnownValues) {
  const double x[] = {-3, -1, 1, 2};
  const double exact[] = {-0.00404969, -0.15865525, 0.84134475, 1.95449974};
  const double tanh[] = {-0.00363739, -0.15880801, 0.84119199, 1.95459769};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(GeluExact::value(static_cast<float>(x[i])), exact[i], 1e-8 + 1e-7 * std::fabs(exact[i]));
    EXPECT_NEAR(GeluTanh::value(static_cast<float>(x[i])), tanh[i], 1e-8 + 1e-7 * std::fabs(tanh[i]));
    EXPECT_NEAR(GeluExact::value(x[i]), exact[i], 5e-9);
    EXPECT_NEAR(GeluTanh::value(x[i]), tanh[i], 5e-9);
  }
}

template <typename Form>
void expect_gelu_errors(double value_tolerance, double slope_tolerance) {
  double worst_value = 0;
  double worst_slope = 0;
  for (int i = -800000; i <= 800000; ++i) {
    const float x = static_cast<float>(i) * 1e-5f;
    const auto single = Form::value_and_slope(x);
    const auto exact = Form::value_and_slope(static_cast<double>(x));
    EXPECT_EQ(single.value, Form::value(x));  // recomputing y in a backward pass must give the forward's bits
    worst_value = std::max(worst_value, std::fabs(single.value - exact.value) / std::max(1e-3, std::fabs(exact.value)));
    worst_slope = std::max(worst_slope, std::fabs(single.slope - exact.slope));
  }
  EXPECT_LT(worst_value, value_tolerance);
  EXPECT_LT(worst_slope, slope_tolerance);
}

TEST(Gelu, ExactFormStaysWithinItsErrorBound) { expect_gelu_errors<GeluExact>(6.5e-7, 2.4e-7); }
TEST(Gelu, TanhFormStaysWithinItsErrorBound) { expect_gelu_errors<GeluTanh>(1.1e-6, 2.4e-7); }

template <typename Form>
void expect_limits() {
  EXPECT_EQ(Form::value(INFINITY), INFINITY);
  EXPECT_EQ(Form::value(-INFINITY), 0.0f);
  for (const float size : {41.0f, 1e6f, 3e38f, INFINITY}) {
    EXPECT_EQ(Form::value_and_slope(size).value, size);
    EXPECT_EQ(Form::value_and_slope(size).slope, 1.0f);
    EXPECT_EQ(Form::value_and_slope(-size).value, 0.0f);
    EXPECT_EQ(Form::value_and_slope(-size).slope, 0.0f);
  }
  EXPECT_TRUE(std::isnan(Form::value(NAN)));
  EXPECT_TRUE(std::isnan(Form::value_and_slope(NAN).slope));
}

TEST(Gelu, HasItsLimitsAtInfinityAndPassesNaN) {
  expect_limits<GeluExact>();
  expect_limits<GeluTanh>();
}

TEST(Exp, IsRightToSingleUlpsAndZeroFarOut) {
  double worst = 0;
  for (int i = 0; i <= 870000; ++i) {
    const float x = static_cast<float>(-i) * 1e-4f;
    worst = std::max(worst, std::fabs(exp_nonpositive(x) / std::exp(static_cast<double>(x)) - 1));
  }
  EXPECT_LT(worst, 1.2e-7);
  EXPECT_EQ(exp_nonpositive(-87.1f), 0.0f);
  EXPECT_EQ(exp_nonpositive(-INFINITY), 0.0f);
  EXPECT_EQ(exp_nonpositive(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(exp_nonpositive(NAN)));
}

}  // namespace
}  // namespace tempo::layers::math
