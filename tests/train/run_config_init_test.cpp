// The architecture of a run that starts from the weights of a folder (init.from).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/config.h"
#include "tests/train/written_config.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using testing::minimal_yaml;
using ::testing::StartsWith;
using testing::WrittenConfig;

/// A configuration with init.from, beside the config.json of BERT-mini with another activation, eps, vocabulary and
/// dropout.
class InitFrom : public ::testing::Test {
 protected:
  InitFrom() {
    weights_ = model::named_size(model::Family::kBert, "mini");
    weights_.hidden_act = "gelu_new";
    weights_.layer_norm_eps = 1e-5;
    weights_.vocab_size = 1000;
    weights_.hidden_dropout = 0.2;
    written_.write("weights/config.json", model::hugging_face_config_text(weights_));
  }

  RunConfig load(const std::vector<std::string>& overrides = {}) const { return written_.load(overrides); }
  std::string error(const std::vector<std::string>& overrides = {}) const { return written_.error(overrides); }

  WrittenConfig written_{minimal_yaml("init: {from: weights}\n")};
  model::ModelConfig weights_;
};

TEST_F(InitFrom, TakesTheArchitectureOfTheFolder) {
  const RunConfig config = load();
  EXPECT_EQ(config.init.from, written_.folder() / "weights");
  EXPECT_EQ(config.model.num_layers, 4);
  EXPECT_EQ(config.model.vocab_size, 1000);
  EXPECT_EQ(config.model.hidden_act, "gelu_new");
  EXPECT_EQ(config.model.layer_norm_eps, 1e-5);
  EXPECT_EQ(config.model.hidden_dropout, 0.2);
  EXPECT_EQ(config.model.vocab_multiple, 1);
}

TEST_F(InitFrom, OnlyThereHasItsOtherKeys) {
  EXPECT_TRUE(load({"init.optimizer=keep"}).init.keep_optimizer);
  EXPECT_FALSE(load().init.keep_optimizer);
  EXPECT_EQ(load({"init.step=9"}).init.step, 9);
  EXPECT_THAT(error({"init.step=10"}), HasSubstr("init.step=10: 10 is not less than train.steps 10"));
  EXPECT_THAT(error({"init.optimizer=warm"}), HasSubstr("keep"));
  for (const char* key : {"init.optimizer=fresh", "init.step=0"}) {
    EXPECT_THAT(WrittenConfig(minimal_yaml()).error({key}), HasSubstr("has no effect, because init.from is not set"));
  }
  const std::string text = resolved_yaml(load({"init.optimizer=keep"}));
  EXPECT_THAT(text, HasSubstr("\n  optimizer: keep\n  step: 0\n"));
  EXPECT_THAT(resolved_yaml(WrittenConfig(minimal_yaml()).load()), ::testing::Not(HasSubstr("init:")));
}

/// The files that users start from; those of second phases begin with a checkpoint that is not there.
TEST_F(InitFrom, EveryConfigurationThatWeShipIsValid) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TEMPO_CONFIG_FOLDER "/run")) {
    const std::string text = (std::ostringstream() << std::ifstream(entry.path()).rdbuf()).str();
    std::vector<std::string> overrides;
    if (text.find("init:") != std::string::npos) {
      written_.write("large/config.json",
                     model::hugging_face_config_text(model::named_size(model::Family::kBert, "large")));
      overrides = {"init.from=" + (written_.folder() / "large").string()};
    }
    EXPECT_NO_THROW(load_run_config(entry.path(), overrides)) << entry.path();
    if (text.find("prepare:") != std::string::npos) {
      EXPECT_NO_THROW(load_prepare_config(entry.path(), {})) << entry.path();
    }
    ++num_files;
  }
  EXPECT_GE(num_files, 8);
}

TEST_F(InitFrom, KeysThatAgreeMayBeWritten) {
  EXPECT_EQ(load({"model.hidden_size=256", "model.layer_norm_eps=0.00001"}).model.hidden_size, 256);
  EXPECT_EQ(load({"model.size=mini"}).model.vocab_size, 1000);
  EXPECT_EQ(load({"model.hidden_act=gelu_pytorch_tanh"}).model.hidden_act, "gelu_pytorch_tanh");  // the same function
}

TEST_F(InitFrom, KeysThatDecideNoWeightsAreTakenAsWritten) {
  const RunConfig config = load({"model.hidden_dropout=0", "model.attention_dropout=0.3", "model.vocab_multiple=8"});
  EXPECT_EQ(config.model.hidden_dropout, 0);
  EXPECT_EQ(config.model.attention_dropout, 0.3);
  EXPECT_EQ(config.model.vocab_multiple, 8);
}

TEST_F(InitFrom, AClashNamesBothKeysAndValues) {
  EXPECT_EQ(error({"model.num_layers=3"}),
            "override model.num_layers=3: model.num_layers 3, but the weights were made with num_hidden_layers 4 "
            "(weights/config.json)");
  EXPECT_THAT(error({"model.hidden_act=gelu"}),
              HasSubstr("model.hidden_act gelu, but the weights were made with hidden_act gelu_new"));
  EXPECT_THAT(error({"model.layer_norm_eps=1e-12"}),
              HasSubstr("model.layer_norm_eps 1.0e-12, but the weights were made with layer_norm_eps 1.0e-05"));
  EXPECT_THAT(
      error({"model.size=tiny"}),
      StartsWith("override model.size=tiny: model.hidden_size 128, but the weights were made with hidden_size 256"));
}

TEST_F(InitFrom, NamesAFolderThatIsMissingOrHoldsNoConfiguration) {
  EXPECT_EQ(error({"init.from=/none/here"}), "override init.from=/none/here: no such folder: /none/here");
  written_.write("empty/x", "");
  EXPECT_THAT(error({"init.from=" + (written_.folder() / "empty").string()}),
              StartsWith("empty/config.json: no such file"));
}

TEST_F(InitFrom, ResolvedConfigurationReadsBack) {
  const std::string text = resolved_yaml(load({"model.hidden_dropout=0"}));
  EXPECT_THAT(text, HasSubstr("init:\n  from: \""));
  EXPECT_EQ(resolved_yaml(WrittenConfig(text).load()), text);
}

}  // namespace
}  // namespace tempo::train
