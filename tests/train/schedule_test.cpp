#include "train/schedule.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tempo::train {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kPoly,
                                   ScheduleKind::kCosine};
constexpr ScheduleKind kDecayingKinds[] = {ScheduleKind::kLinear, ScheduleKind::kPoly, ScheduleKind::kCosine};

constexpr std::int64_t kNumSteps = 10;
constexpr double kPeak = 1e-3;

Schedule ten_steps(ScheduleKind kind, double warmup_steps, double min_lr = 0) {
  return {kind, kPeak, min_lr, warmup_steps, kNumSteps};
}

TEST(Schedule, PolyHasNvidiasPublishedRates) {
  const Schedule phase1{ScheduleKind::kPoly, 6e-3, 0, 0.2843 * 7038, 7038};
  EXPECT_NEAR(phase1.lr(1), 3.0e-6, 5e-9);
  EXPECT_NEAR(phase1.lr(2000), 5.997e-3, 5e-7);
  EXPECT_NEAR(phase1.lr(2001), 5.076e-3, 5e-7);
  EXPECT_NEAR(phase1.lr(3519), 4.243e-3, 5e-7);
  EXPECT_NEAR(phase1.lr(7037), 7.15e-5, 5e-8);
  EXPECT_EQ(phase1.lr(7038), 0);
  const Schedule phase2{ScheduleKind::kPoly, 4e-3, 0, 0.128 * 1563, 1563};
  EXPECT_NEAR(phase2.lr(1), 2.0e-5, 5e-8);
  EXPECT_NEAR(phase2.lr(200), 3.999e-3, 5e-7);
  EXPECT_NEAR(phase2.lr(201), 3.734e-3, 5e-7);
  EXPECT_NEAR(phase2.lr(1562), 1.012e-4, 5e-8);
}

TEST(Schedule, LinearRisesAndFallsInEqualStepsAndPeaksOnce) {
  const Schedule schedule = ten_steps(ScheduleKind::kLinear, 4);
  for (std::int64_t n = 1; n <= 4; ++n) EXPECT_NEAR(schedule.lr(n), n * 2.5e-4, 1e-18) << n;
  EXPECT_EQ(schedule.lr(4), kPeak);
  for (std::int64_t n = 5; n <= kNumSteps; ++n) EXPECT_NEAR(schedule.lr(n - 1) - schedule.lr(n), kPeak / 6, 1e-18) << n;
  EXPECT_EQ(schedule.lr(kNumSteps), 0);
}

TEST(Schedule, EveryKindReachesThePeakOnceAtTheEndOfTheWarmup) {
  for (const ScheduleKind kind : kDecayingKinds) {
    for (const double warmup : {1.0, 3.0, 4.0, 7.0, 10.0}) {
      const Schedule schedule = ten_steps(kind, warmup);
      for (std::int64_t n = 1; n <= kNumSteps; ++n) {
        if (n == warmup) {
          EXPECT_EQ(schedule.lr(n), kPeak) << warmup;
        } else {
          EXPECT_LT(schedule.lr(n), kPeak) << warmup << " " << n;
        }
      }
    }
  }
}

TEST(Schedule, IsNeverNegativeNorNaNAndEndsAtTheFloor) {
  for (const ScheduleKind kind : kKinds) {
    for (const double warmup : {0.0, 1.0, 4.0, 10.0, 1.5, 0.25}) {
      for (const double floor : {0.0, 1e-5}) {
        const Schedule schedule = ten_steps(kind, warmup, floor);
        for (std::int64_t n = 1; n <= kNumSteps + 3; ++n) {
          const double rate = schedule.lr(n);
          EXPECT_TRUE(std::isfinite(rate) && rate >= 0 && rate <= kPeak)
              << static_cast<int>(kind) << " " << warmup << " " << n;
          if (n > kNumSteps) {
            EXPECT_EQ(rate, kind == ScheduleKind::kConstant ? kPeak : floor);
          }
        }
        EXPECT_GT(schedule.lr(1), 0);
      }
    }
  }
}

TEST(Schedule, WithoutWarmupStartsAtThePeakAndDecaysFromThere) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kPoly, ScheduleKind::kCosine}) {
    EXPECT_EQ(ten_steps(kind, 0).lr(1), kPeak);
  }
  EXPECT_DOUBLE_EQ(ten_steps(ScheduleKind::kLinear, 0).lr(2), 0.9 * kPeak);
  EXPECT_DOUBLE_EQ(ten_steps(ScheduleKind::kLinear, 0).lr(10), 0.1 * kPeak);
  EXPECT_DOUBLE_EQ(ten_steps(ScheduleKind::kPoly, 0).lr(2), std::sqrt(0.9) * kPeak);
  EXPECT_DOUBLE_EQ(ten_steps(ScheduleKind::kCosine, 0).lr(2), (1 + std::cos(0.1 * std::acos(-1.0))) / 2 * kPeak);
}

TEST(Schedule, TakesAFractionOfAStepOfWarmup) {
  const Schedule schedule{ScheduleKind::kLinear, kPeak, 0, 0.1 * 15, 15};
  EXPECT_DOUBLE_EQ(schedule.lr(1), kPeak / 1.5);
  EXPECT_DOUBLE_EQ(schedule.lr(2), kPeak * 13 / 13.5);
  EXPECT_DOUBLE_EQ(schedule.lr(14), kPeak * 1 / 13.5);
  EXPECT_EQ(schedule.lr(15), 0);
}

TEST(Schedule, ConstantStaysAtThePeakAfterTheWarmup) {
  const Schedule schedule = ten_steps(ScheduleKind::kConstant, 4);
  EXPECT_EQ(schedule.lr(2), kPeak / 2);
  for (std::int64_t n = 4; n <= kNumSteps + 3; ++n) EXPECT_EQ(schedule.lr(n), kPeak) << n;
}

TEST(Schedule, CosineIsHalfwayInTheMiddleAndEndsExactlyAtItsFloor) {
  const Schedule schedule = ten_steps(ScheduleKind::kCosine, 4, 1e-4);
  EXPECT_NEAR(schedule.lr(7), (kPeak + 1e-4) / 2, 1e-18);
  EXPECT_EQ(schedule.lr(kNumSteps), 1e-4);
}

TEST(Schedule, FloorCutsLinearAndPolyButNotTheWarmup) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kPoly}) {
    const Schedule schedule = ten_steps(kind, 4, 5e-4);
    EXPECT_EQ(schedule.lr(1), 2.5e-4);
    EXPECT_GT(schedule.lr(5), 5e-4);
    EXPECT_EQ(schedule.lr(9), 5e-4);
    EXPECT_EQ(schedule.lr(10), 5e-4);
  }
}

TEST(Schedule, RefusesStepsBeforeTheFirst) { EXPECT_THROW(ten_steps(ScheduleKind::kLinear, 4).lr(0), c10::Error); }

}  // namespace
}  // namespace tempo::train
