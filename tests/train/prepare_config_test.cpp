#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/written_config.h"
#include "train/run_config.h"

namespace tempo::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::value_error_of;
using testing::WrittenConfig;

constexpr const char* kPrepare = "prepare: {input: text, tokenizer: vocab.txt, output: shards}\n";

RunConfig load(const WrittenConfig& written, const std::vector<std::string>& overrides = {}) {
  return load_prepare_config(written.file(), overrides);
}

std::string error(const WrittenConfig& written, const std::vector<std::string>& overrides = {}) {
  return value_error_of([&] { load(written, overrides); });
}

TEST(PrepareConfigTest, NeedsNothingThatOnlyTrainingNeeds) {
  const WrittenConfig written(std::string(kPrepare) + "data: {sequence_length: 128}\n");
  const RunConfig config = load(written);
  EXPECT_EQ(config.prepare.tokenizer, written.folder() / "vocab.txt");
  EXPECT_EQ(config.prepare.output, written.folder() / "shards");
  EXPECT_EQ(config.prepare.duplicates, 5);
  EXPECT_EQ(config.data.max_predictions, 20);
}

TEST(PrepareConfigTest, PredictionsAreThoseOfBertsRecipes) {
  for (const auto& [length, predictions] :
       {std::pair(128, 20), std::pair(384, 60), std::pair(512, 80), std::pair(33, 6)}) {
    const WrittenConfig written(std::string(kPrepare) + "data: {sequence_length: " + std::to_string(length) + "}\n");
    EXPECT_EQ(load(written).data.max_predictions, predictions);
  }
  const WrittenConfig written(std::string(kPrepare) + "data: {sequence_length: 512, max_predictions: 76}\n");
  EXPECT_EQ(load(written).data.max_predictions, 76);
}

TEST(PrepareConfigTest, MissingKeysAreNamedWithAnExample) {
  EXPECT_THAT(error(WrittenConfig("data: {sequence_length: 128}\n")),
              AllOf(HasSubstr("prepare.input is missing, write for example prepare: {input: corpus}"),
                    HasSubstr("prepare.tokenizer is missing"), HasSubstr("prepare.output is missing"),
                    Not(HasSubstr("run.dir"))));
  EXPECT_THAT(error(WrittenConfig(kPrepare)), HasSubstr("data.sequence_length is missing"));
}

TEST(PrepareConfigTest, BoundsAreChecked) {
  const WrittenConfig written(std::string(kPrepare) + "data: {sequence_length: 128}\n");
  EXPECT_THAT(error(written, {"data.sequence_length=4"}), HasSubstr("4 is too short for a pair of segments"));
  EXPECT_THAT(error(written, {"data.max_predictions=129"}), HasSubstr("129 is more than data.sequence_length 128"));
  EXPECT_THAT(error(written, {"prepare.validation=1e-9"}), HasSubstr("is too small; 0 or at least 1.0e-06"));
  EXPECT_THAT(error(written, {"prepare.validation=0.6"}), HasSubstr("prepare.validation"));
  EXPECT_THAT(error(written, {"prepare.sentences=nltk"}), AllOf(HasSubstr("icu"), HasSubstr("lines")));
  EXPECT_THAT(error(written, {"prepare.masked_share=0"}), HasSubstr("prepare.masked_share"));
}

TEST(PrepareConfigTest, ARunsResolvedTextHasTheSectionOnlyWhereItIsWritten) {
  EXPECT_THAT(resolved_yaml(WrittenConfig(testing::minimal_yaml()).load()), Not(HasSubstr("prepare:")));
  const WrittenConfig written(testing::minimal_yaml(kPrepare));
  const std::string text = resolved_yaml(written.load());
  EXPECT_THAT(text, AllOf(HasSubstr("prepare:\n  input:\n    - \""), HasSubstr("  duplicates: 5\n")));
  EXPECT_EQ(resolved_yaml(WrittenConfig(text).load()), text);
}

}  // namespace
}  // namespace tempo::train
