#include "train/run_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;

class RunComparisonOf : public ::testing::Test {
 protected:
  RunComparisonOf() {
    for (const char* run : {"a", "b"}) {
      std::filesystem::create_directory(folder_ / run);
      write(run, "config.yaml",
            std::string("train:\n  steps: 3\noptimizer:\n  betas: [0.9, 0.5]\n  lr: 0.1\nrun:\n  dir: ") + run + "\n");
      write(run, "metrics.jsonl", train_line(1, "3.5") + train_line(2, "3.25") + train_line(3, "3"));
    }
  }

  void write(const std::string& run, const std::string& name, const std::string& text) {
    std::ofstream(folder_ / run / name) << text;
  }
  static std::string train_line(int step, const std::string& loss, const std::string& step_ms = "1") {
    return R"({"kind": "train", "step": )" + std::to_string(step) + R"(, "loss": )" + loss +
           R"(, "lr": 0.1, "step_ms": )" + step_ms + "}\n";
  }
  RunComparison compare() { return compare_runs(folder_ / "a", folder_ / "b"); }

  testing::TemporaryDirectory folder_;
};

TEST_F(RunComparisonOf, EqualRunsAgreeWhateverTheirFolderAndTheirSpeed) {
  write("b", "metrics.jsonl", train_line(1, "3.5", "9") + train_line(2, "3.25", "8") + train_line(3, "3.0"));
  const RunComparison comparison = compare();
  EXPECT_TRUE(comparison.agrees());
  EXPECT_EQ(comparison.steps_compared, 3);
  EXPECT_EQ(comparison.steps_agreeing, 3);
  EXPECT_FALSE(comparison.a_has_environment);
}

TEST_F(RunComparisonOf, KeysAreThoseOfEitherInOrder) {
  write("b", "config.yaml",
        "train:\n  steps: 3\n  seed: 1\noptimizer:\n  betas: [0.9, 0.6]\nrun:\n  overwrite: true\n");
  const RunComparison comparison = compare();
  ASSERT_EQ(comparison.config.size(), 3);
  EXPECT_EQ(comparison.config[0].key, "optimizer.betas");
  EXPECT_EQ(comparison.config[0].b, "[0.9, 0.6]");
  EXPECT_EQ(comparison.config[1].key, "optimizer.lr");
  EXPECT_EQ(comparison.config[1].b, std::nullopt);
  EXPECT_EQ(comparison.config[2].key, "train.seed");
  EXPECT_EQ(comparison.config[2].a, std::nullopt);
  EXPECT_FALSE(comparison.agrees());
}

TEST_F(RunComparisonOf, EnvironmentsAreComparedWhereBothHaveOne) {
  write("a", "environment.json", "{\"tempo\": \"1\", \"threads\": 2}");
  EXPECT_TRUE(compare().agrees());
  write("b", "environment.json", "{\"tempo\": \"1\", \"threads\": 4}");
  const RunComparison comparison = compare();
  ASSERT_EQ(comparison.environment.size(), 1);
  EXPECT_EQ(comparison.environment[0].key, "threads");
  EXPECT_EQ(comparison.environment[0].a, "2");
  EXPECT_FALSE(comparison.agrees());
}

TEST_F(RunComparisonOf, TheFirstStepThatDiffersByOneBitIsFound) {
  write("b", "metrics.jsonl", train_line(1, "3.5") + train_line(2, "3.2500000000000004") + train_line(3, "4"));
  const RunComparison comparison = compare();
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(comparison.first->step, 2);
  EXPECT_EQ(comparison.first->key, "loss");
  EXPECT_EQ(comparison.first->b, std::nextafter(3.25, 4));
  EXPECT_DOUBLE_EQ(comparison.first->relative().value(), std::numeric_limits<double>::epsilon() * 2 / 3.25);
  EXPECT_EQ(comparison.steps_agreeing, 1);
  EXPECT_EQ(comparison.steps_compared, 3);
}

TEST_F(RunComparisonOf, EvaluationsCountAfterTheTrainRecordOfTheirStep) {
  const std::string lines = train_line(1, "3.5") + train_line(2, "3.25");
  write("a", "metrics.jsonl",
        R"({"kind": "validation", "step": 2, "loss": 5, "seconds": 1})"
        "\n" +
            lines);
  write("b", "metrics.jsonl",
        R"({"kind": "validation", "step": 2, "loss": 6, "seconds": 2})"
        "\n" +
            lines);
  const RunComparison comparison = compare();
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(comparison.first->key, "validation.loss");
  EXPECT_EQ(comparison.steps_compared, 2);
}

TEST_F(RunComparisonOf, WhatIsNotFiniteEqualsItselfOnly) {
  const std::string lost = train_line(1, "3.5") + train_line(2, "null");
  write("a", "metrics.jsonl", lost);
  write("b", "metrics.jsonl", lost);
  EXPECT_TRUE(compare().agrees());
  write("b", "metrics.jsonl", train_line(1, "3.5") + train_line(2, "1"));
  const RunComparison comparison = compare();
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(comparison.first->step, 2);
  EXPECT_FALSE(comparison.first->relative());
}

TEST_F(RunComparisonOf, AShorterRunIsComparedAsFarAsItGoes) {
  write("b", "metrics.jsonl", train_line(1, "3.5") + train_line(2, "3.25").substr(0, 20));
  const RunComparison comparison = compare();
  EXPECT_TRUE(comparison.agrees());
  EXPECT_EQ(comparison.steps_compared, 1);
  EXPECT_EQ(comparison.a_last_step, 3);
  EXPECT_EQ(comparison.b_last_step, 1);
}

TEST_F(RunComparisonOf, RunsWithoutACommonStepDoNotAgree) {
  write("b", "metrics.jsonl", "");
  EXPECT_FALSE(compare().agrees());
  EXPECT_EQ(compare().steps_compared, 0);
}

TEST_F(RunComparisonOf, MistakesNameThePath) {
  const auto error = [&](const char* name) {
    return testing::value_error_of([&] { compare_runs(folder_ / "a", folder_ / name); });
  };
  EXPECT_THAT(error("none"), HasSubstr("none is not a run directory: it does not exist"));
  std::filesystem::create_directory(folder_ / "empty");
  EXPECT_THAT(error("empty"), HasSubstr("empty is not a run directory: it holds no config.yaml"));
  write("b", "environment.json", "no JSON");
  EXPECT_THAT(error("b"), HasSubstr("environment.json: is no JSON object"));
}

}  // namespace
}  // namespace tempo::train
