#include "train/metrics_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"
#include "train/metrics.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;

class MetricsReader : public ::testing::Test {
 protected:
  MetricsRecords read(const std::string& text) {
    std::ofstream(folder_ / "metrics.jsonl") << text;
    return read_metrics(folder_ / "metrics.jsonl");
  }
  std::string error_of(const std::string& text) {
    return testing::value_error_of([&] { read(text); });
  }

  testing::TemporaryDirectory folder_;
};

const std::string kFirst = R"({"kind": "train", "step": 1, "loss": 3.5})";

TEST_F(MetricsReader, GivesBackWhatTheWriterWrote) {
  TrainRecord train;
  train.step = 7;
  train.loss = 0.1 + 0.2;
  train.grad_norm = std::nan("");
  train.real_tokens = 1'000'001;
  ValidationRecord validation;
  validation.step = 7;
  validation.loss = 1.0 / 3;
  MetricsWriter writer(folder_ / "metrics.jsonl", folder_.path());
  writer.write(validation);
  writer.write(train);
  const MetricsRecords records = read_metrics(folder_ / "metrics.jsonl");
  EXPECT_EQ(records.last_step(), 7);
  EXPECT_EQ(records.train.at(7).numbers.at("loss"), 0.1 + 0.2);
  EXPECT_EQ(records.train.at(7).numbers.at("real_tokens"), 1'000'001);
  EXPECT_TRUE(std::isnan(records.train.at(7).numbers.at("grad_norm")));
  EXPECT_EQ(records.train.at(7).line, 2);
  EXPECT_EQ(records.validation.at(7).numbers.at("loss"), 1.0 / 3);
}

TEST_F(MetricsReader, LeavesOutAnUnfinishedLastLineAndOtherKinds) {
  EXPECT_EQ(read(kFirst + "\n{\"kind\": \"train\", \"step\": 2, \"lo").last_step(), 1);
  EXPECT_EQ(read(kFirst + "\n" + R"({"kind": "note", "text": "x"})" + "\n").train.size(), 1);
  EXPECT_EQ(read(kFirst).last_step(), 1);  // whole but for its line end
  EXPECT_EQ(read("").last_step(), 0);
}

TEST_F(MetricsReader, AMissingFileHasNoRecords) { EXPECT_EQ(read_metrics(folder_ / "none.jsonl").last_step(), 0); }

TEST_F(MetricsReader, NamesFileAndLineOfWhatIsBroken) {
  EXPECT_THAT(error_of(kFirst + "\n\n" + kFirst + "\n"), HasSubstr("metrics.jsonl:2: is no JSON object"));
  EXPECT_THAT(error_of(kFirst + "\n" + kFirst + "\n"),
              HasSubstr("metrics.jsonl:2: a second train record of step 1; the first is in line 1"));
  EXPECT_THAT(error_of("{\"step\": 1}\n"), HasSubstr("metrics.jsonl:1: kind"));
  EXPECT_THAT(error_of("{\"kind\": \"train\", \"step\": \"1\"}\n"), HasSubstr("metrics.jsonl:1: step"));
}

}  // namespace
}  // namespace tempo::train
