#include "train/run_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "train/memory_tracker.h"

namespace tempo::train {
namespace {

/// A meter whose clock is moved by hand, in seconds.
class RunMeterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_memory_tracker(); }

  RunMeter::Clock::time_point at_second(double seconds) const {
    return RunMeter::Clock::time_point() +
           std::chrono::duration_cast<RunMeter::Clock::duration>(std::chrono::duration<double>(seconds));
  }

  void step(RunMeter& meter, double seconds) {
    data::Batch batch;
    batch.num_sequences = 8;
    batch.num_tokens = 80;
    batch.num_real_tokens = 70;
    meter.count(batch);
    now_ += seconds;
    meter.end_step(at_second(now_));
  }

  void evaluation(RunMeter& meter, double seconds) {
    meter.begin_evaluation(at_second(now_));
    now_ += seconds;
    meter.end_evaluation(at_second(now_));
  }

  TrainRecord measured(RunMeter& meter) {
    TrainRecord record;
    meter.measure(record, at_second(now_));
    return record;
  }

  double now_ = 100;
};

TEST_F(RunMeterTest, GivesMeansSinceTheLastRecordAndTotalsSinceTheFirstStep) {
  RunMeter meter(c10::kCPU, {10, {}, 0, 0});
  meter.start(at_second(now_));
  step(meter, 2);
  EXPECT_DOUBLE_EQ(measured(meter).step_ms, 2000);
  step(meter, 1);
  step(meter, 3);
  const TrainRecord record = measured(meter);
  EXPECT_DOUBLE_EQ(record.step_ms, 2000);
  EXPECT_DOUBLE_EQ(record.sequences_per_s, 4);
  EXPECT_DOUBLE_EQ(record.tokens_per_s, 40);
  EXPECT_EQ(record.sequences, 24);
  EXPECT_EQ(record.tokens, 240);
  EXPECT_EQ(record.real_tokens, 210);
}

TEST_F(RunMeterTest, LeavesEvaluationsOutOfTheRates) {
  RunMeter meter(c10::kCPU, {10, {2, 10}, 16, 0});
  meter.start(at_second(now_));
  step(meter, 2);
  evaluation(meter, 50);
  step(meter, 2);
  EXPECT_DOUBLE_EQ(measured(meter).step_ms, 2000);
}

TEST_F(RunMeterTest, LeavesEvaluationsOutOfThePeaks) {
  RunMeter meter(c10::kCPU, {10, {1, 10}, 16, 0});
  meter.start(at_second(now_));
  const std::int64_t live = cpu_memory_use().live_bytes;
  at::empty({1000}, at::kByte);
  meter.begin_evaluation(at_second(now_));
  at::empty({5000}, at::kByte);
  meter.end_evaluation(at_second(now_));
  at::empty({10}, at::kByte);
  step(meter, 1);
  EXPECT_EQ(measured(meter).peak_allocated_bytes, live + 1000);
  at::empty({20}, at::kByte);
  step(meter, 1);
  EXPECT_EQ(measured(meter).peak_allocated_bytes, live + 20);
}

TEST_F(RunMeterTest, ExpectsStepsEvaluationsAndTheEnd) {
  RunMeter meter(c10::kCPU, {10, {4, 10}, 48, 5});
  meter.start(at_second(now_));
  EXPECT_TRUE(std::isnan(meter.seconds_left()));
  step(meter, 9);  // the slow first step is all there is to go by
  EXPECT_NEAR(meter.seconds_left(), 9 * 9 + 3 * (48 * 9.0 / 8 / 3) + 5, 1e-6);
  for (int i = 2; i <= 4; ++i) step(meter, 1);
  // Three evaluations of 48 sequences, at a third of 1/8 s each, are estimated at 2 s.
  EXPECT_NEAR(meter.seconds_left(), 6 * 1 + 3 * 2 + 5, 1e-6);
  evaluation(meter, 3);
  EXPECT_NEAR(meter.seconds_left(), 6 * 1 + 2 * 3 + 5, 1e-6);
  EXPECT_NEAR(meter.seconds_left(0.25), 5.75 * 1 + 2 * 3 + 5, 1e-6);
  for (int i = 5; i <= 10; ++i) step(meter, 1);
  evaluation(meter, 3);
  evaluation(meter, 3);
  EXPECT_NEAR(meter.seconds_left(), 5, 1e-6);
}

}  // namespace
}  // namespace tempo::train
