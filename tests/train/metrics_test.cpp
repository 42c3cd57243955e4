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

}  // namespace
}  // namespace tempo::train
