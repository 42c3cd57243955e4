#include "train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What a writer leaves in an empty folder: the text of metrics.jsonl and the bytes of the event file.
struct Written {
  template <typename Record>
  explicit Written(const Record& record) {
    const testing::TemporaryDirectory folder;
    MetricsWriter(folder / "metrics.jsonl", folder.path()).write(record);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      (entry.path().filename() == "metrics.jsonl" ? lines : events) = contents(entry.path());
    }
  }

  std::string lines;
  std::string events;
};

TEST(MetricsWriter, WritesATrainRecordToBothFiles) {
  TrainRecord record;
  record.step = 3;
  record.loss = 2.5;
  record.peak_allocated_bytes = 1 << 20;
  const Written written(record);
  const auto line = nlohmann::json::parse(written.lines);
  EXPECT_EQ(line.at("kind"), "train");
  EXPECT_EQ(line.at("loss"), 2.5);
  EXPECT_FALSE(line.contains("peak_reserved_bytes"));
  for (const char* tag :
       {"train/loss", "train/mlm_loss", "train/nsp_loss", "train/mlm_accuracy", "train/lr", "train/grad_norm",
        "train/sequences_per_s", "train/tokens_per_s", "train/step_ms", "memory/peak_allocated_bytes"})
    EXPECT_THAT(written.events, HasSubstr(tag));
  EXPECT_THAT(written.events, Not(HasSubstr("memory/peak_reserved_bytes")));
}

TEST(MetricsWriter, WritesWhatIsNotFiniteAsNull) {
  TrainRecord record;
  record.step = 3;
  record.loss = std::numeric_limits<double>::infinity();
  record.grad_norm = std::numeric_limits<double>::quiet_NaN();
  record.skipped_steps = 2;
  const auto line = nlohmann::json::parse(Written(record).lines);
  EXPECT_TRUE(line.at("loss").is_null());
  EXPECT_TRUE(line.at("grad_norm").is_null());
  EXPECT_EQ(line.at("skipped_steps"), 2);
  EXPECT_THAT(console_text(record), HasSubstr("skipped 2"));
}

TEST(MetricsWriter, InsertsAnEvaluationBeforeTheTrainLineOfItsStep) {
  const testing::TemporaryDirectory folder;
  MetricsWriter writer(folder / "metrics.jsonl", folder.path());
  const auto order = [&] {
    std::string text;
    std::ifstream file(folder / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      text += record["kind"].get<std::string>().substr(0, 1) + std::to_string(record["step"].get<int>()) + " ";
    }
    return text;
  };
  const auto train = [](std::int64_t step) {
    TrainRecord record;
    record.step = step;
    return record;
  };
  const auto validation = [](std::int64_t step) {
    ValidationRecord record;
    record.step = step;
    return record;
  };
  writer.write(train(3));
  writer.insert(validation(3));
  EXPECT_EQ(order(), "v3 t3 ");
  EXPECT_TRUE(has_evaluation(folder / "metrics.jsonl", 3));
  EXPECT_FALSE(has_evaluation(folder / "metrics.jsonl", 4));
  writer.insert(validation(4));  // whose step is not logged
  writer.write(train(6));
  EXPECT_EQ(order(), "v3 t3 v4 t6 ");
  cut_back(folder / "metrics.jsonl", folder.path(), 4);
  EXPECT_EQ(order(), "v3 t3 v4 ");
}

TEST(CutBack, DropsTheEventOfAnEvaluationWhoseLineIsMissing) {
  const testing::TemporaryDirectory folder;
  TrainRecord record;
  record.step = 3;
  MetricsWriter(folder / "metrics.jsonl", folder.path()).write(record);
  ValidationRecord evaluation;
  evaluation.step = 3;
  EventFile events(folder.path());
  const auto size = std::filesystem::file_size(events.path());
  events.write(3, {{"validation/loss", 1}});
  cut_back(folder / "metrics.jsonl", folder.path(), 3);
  EXPECT_EQ(std::filesystem::file_size(events.path()), size);
  EXPECT_THAT(contents(folder / "metrics.jsonl"), HasSubstr("\"step\":3"));
}

TEST(MetricsWriter, WritesReservedBytesWhereThereAreAny) {
  TrainRecord record;
  record.peak_reserved_bytes = 5;
  EXPECT_THAT(Written(record).events, HasSubstr("memory/peak_reserved_bytes"));
  EXPECT_THAT(Written(record).lines, HasSubstr("\"peak_reserved_bytes\":5"));
}

TEST(MetricsWriter, WritesAValidationRecordToBothFiles) {
  const Written written(ValidationRecord{4, 3.5, 3, 0.5, 0.25, 32, 1.5});
  EXPECT_EQ(written.lines,
            "{\"kind\":\"validation\",\"step\":4,\"loss\":3.5,\"mlm_loss\":3.0,\"nsp_loss\":0.5,\"mlm_accuracy\":0.25,"
            "\"sequences\":32,\"seconds\":1.5}\n");
  for (const char* tag : {"validation/loss", "validation/mlm_loss", "validation/nsp_loss", "validation/mlm_accuracy"})
    EXPECT_THAT(written.events, HasSubstr(tag));
}

TEST(MetricsWriter, WritesALossThatIsNoNumberAsNull) {
  TrainRecord record;
  record.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Written(record).lines, HasSubstr("\"loss\":null"));
}

TEST(ConsoleText, IsALineForAPerson) {
  EXPECT_EQ(console_text(ValidationRecord{100, 3.91, 3.65, 0.26, 0.291, 32, 3.21}),
            "step 100  held out  loss 3.9100  mlm 3.6500  nsp 0.2600  acc 0.291  (3.2 s)");
  TrainRecord record;
  record.loss = 2.5;
  record.peak_allocated_bytes = 3 << 20;
  EXPECT_EQ(console_text(record),
            "loss 2.5000  mlm 0.0000  nsp 0.0000  acc 0.000  lr 0  grad 0  0 seq/s  0 tok/s  peak 3.0 MiB");
}

/// The files of a run whose steps 1 ... 5 are recorded, with an evaluation before the records of steps 2 and 4.
void write_run(const std::filesystem::path& folder) {
  MetricsWriter writer(folder / "metrics.jsonl", folder);
  for (std::int64_t step = 1; step <= 5; ++step) {
    ValidationRecord validation;
    validation.step = step;
    if (step % 2 == 0) writer.write(validation);
    TrainRecord record;
    record.step = step;
    writer.write(record);
  }
}

std::filesystem::path events_in(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() != "metrics.jsonl") return entry.path();
  }
  return {};
}

TEST(CutBack, LeavesTheRecordsUpToTheStep) {
  const testing::TemporaryDirectory folder;
  write_run(folder.path());
  const std::size_t all_events = contents(events_in(folder.path())).size();
  cut_back(folder / "metrics.jsonl", folder.path(), 5);
  EXPECT_EQ(contents(events_in(folder.path())).size(), all_events);
  cut_back(folder / "metrics.jsonl", folder.path(), 4);
  std::vector<std::int64_t> steps;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 2, 3, 4, 4}));
  EXPECT_LT(contents(events_in(folder.path())).size(), all_events);
}

TEST(CutBack, DropsWhatAKilledWriterLeftUnfinished) {
  const testing::TemporaryDirectory folder;
  write_run(folder.path());
  const std::string lines = contents(folder / "metrics.jsonl");
  const std::string events = contents(events_in(folder.path()));
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << R"({"kind":"train","step":6,"lo)";
  std::ofstream(events_in(folder.path()), std::ios::app) << std::string("\x1a\0\0\0", 4);
  cut_back(folder / "metrics.jsonl", folder.path(), 9);
  EXPECT_EQ(contents(folder / "metrics.jsonl"), lines);
  EXPECT_EQ(contents(events_in(folder.path())), events);
}

TEST(CutBack, WhatAPowerLossLeftOfALineEndsTheFile) {
  const testing::TemporaryDirectory folder;
  std::ofstream(folder / "metrics.jsonl") << "{\"step\":1}\nnot json\n{\"step\":2}\n";
  cut_back(folder / "metrics.jsonl", folder.path(), 2);
  EXPECT_EQ(contents(folder / "metrics.jsonl"), "{\"step\":1}\n");
}

}  // namespace
}  // namespace tempo::train
