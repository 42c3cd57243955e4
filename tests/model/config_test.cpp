#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::value_error_of;
using Json = nlohmann::json;

/// Fixture F1 of cases.md.
ModelConfig tiny_fixture() {
  ModelConfig config;
  config.vocab_size = 16;
  config.hidden_size = 8;
  config.num_layers = 2;
  config.num_heads = 2;
  config.intermediate_size = 32;
  config.max_positions = 12;
  config.hidden_dropout = 0;
  config.attention_dropout = 0;
  return config;
}

void write_file(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

/// What reading a config.json with these keys changed or added says.
std::string error_with(const Json& changes) {
  const TemporaryDirectory folder;
  Json document = Json::parse(hugging_face_config_text(tiny_fixture()));
  document.update(changes);
  write_file(folder / "config.json", document.dump());
  return value_error_of([&] { read_hugging_face_config(folder.path()); });
}

ModelConfig config_of(const std::string& text) {
  const TemporaryDirectory folder;
  write_file(folder / "config.json", text);
  return read_hugging_face_config(folder.path());
}

void expect_equal(const ModelConfig& left, const ModelConfig& right) {
  for (const auto& field : integer_fields()) EXPECT_EQ(left.*field.member, right.*field.member) << field.key;
  for (const auto& field : real_fields()) EXPECT_EQ(left.*field.member, right.*field.member) << field.key;
  EXPECT_EQ(left.hidden_act, right.hidden_act);
  EXPECT_EQ(left.family, right.family);
}

TEST(Bounds, TextSaysWhichEndsBelong) {
  EXPECT_EQ((Bounds<std::int64_t>{1, 512}.text()), "from 1 to 512");
  EXPECT_EQ((Bounds<double>{0, std::numeric_limits<double>::infinity()}.text()), "0 or more");
  EXPECT_EQ((Bounds<double>{0, std::numeric_limits<double>::infinity(), true}.text()), "above 0");
  EXPECT_EQ((Bounds<double>{0, 1, false, true}.text()), "at least 0 and below 1");
}

TEST(Bounds, HoldNoNaN) { EXPECT_FALSE((Bounds<double>{0, 1}.contains(std::numeric_limits<double>::quiet_NaN()))); }

TEST(NumberText, IsTheShortestThatReadsBackAndHasAPointBesideAnExponent) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1), "1");
  EXPECT_EQ(number_text(1e-12), "1.0e-12");
  EXPECT_EQ(number_text(1e8), "1.0e+08");
  EXPECT_EQ(number_text(2.5e-7), "2.5e-07");
  EXPECT_EQ(number_text(1e-4), "0.0001");
  EXPECT_EQ(number_text(2e-5), "2.0e-05");
  EXPECT_EQ(number_text(7038), "7038");
  for (const double value : {1.0 / 3, 6e-3, 1e-4, 0.1 + 0.2, 123456789.123, 1e-300})
    EXPECT_EQ(std::stod(number_text(value)), value);
}

TEST(NamedSize, FollowsGoogleResearchBert) {
  const struct {
    const char* name;
    std::int64_t layers, hidden, heads;
  } published[] = {{"tiny", 2, 128, 2},   {"mini", 4, 256, 4},   {"small", 4, 512, 8},
                   {"medium", 8, 512, 8}, {"base", 12, 768, 12}, {"large", 24, 1024, 16}};
  std::vector<std::string> names;
  for (const auto& expected : published) {
    const ModelConfig config = named_size(Family::kBert, expected.name);
    EXPECT_EQ(config.num_layers, expected.layers) << expected.name;
    EXPECT_EQ(config.hidden_size, expected.hidden) << expected.name;
    EXPECT_EQ(config.num_heads, expected.heads) << expected.name;
    EXPECT_EQ(config.intermediate_size, 4 * expected.hidden) << expected.name;
    EXPECT_EQ(config.head_size(), 64) << expected.name;
    EXPECT_NO_THROW(validate(config));
    names.emplace_back(expected.name);
  }
  EXPECT_EQ(size_names(Family::kBert), names);
}

TEST(NamedSize, UnknownNameListsTheKnownOnes) {
  EXPECT_EQ(value_error_of([] { named_size(Family::kBert, "huge"); }),
            "size: \"huge\" is not known; allowed: tiny, mini, small, medium, base, large");
}

TEST(CountParameters, EqualsThePublishedNumbers) {
  ModelConfig base = named_size(Family::kBert, "base");
  EXPECT_EQ(count_parameters(base), 110'106'428);
  EXPECT_EQ(count_parameters(named_size(Family::kBert, "large")), 336'226'108);
  EXPECT_EQ(count_parameters(tiny_fixture()), 2194);
  EXPECT_EQ(count_parameters(named_size(Family::kBert, "tiny")), 4'433'468);  // counted by transformers
  base.vocab_multiple = 8;
  EXPECT_EQ(base.padded_vocab_size(), 30528);
  EXPECT_EQ(count_parameters(base), 110'111'042);
}

TEST(Activation, NamesOfHuggingFaceChooseTheExactOrTheTanhForm) {
  ModelConfig config;
  EXPECT_EQ(config.activation(), Activation::kGelu);
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh"}) {
    config.hidden_act = name;
    EXPECT_EQ(config.activation(), Activation::kGeluTanh) << name;
  }
}

TEST(Activation, UnknownNameListsTheKnownOnes) {
  ModelConfig config;
  config.hidden_act = "relu";
  const std::string expected = "hidden_act: \"relu\" is not known; allowed: gelu, gelu_new, gelu_pytorch_tanh";
  EXPECT_EQ(value_error_of([&] { config.activation(); }), expected);
  EXPECT_EQ(value_error_of([&] { validate(config); }), expected);
}

TEST(Validate, NamesTheKeyTheValueAndWhatIsAllowed) {
  const auto error_of = [](auto member, auto value) {
    ModelConfig config;
    config.*member = value;
    return value_error_of([&] { validate(config); });
  };
  EXPECT_EQ(error_of(&ModelConfig::num_layers, 0), "num_layers: 0 is out of range; allowed: from 1 to 1000");
  EXPECT_EQ(error_of(&ModelConfig::num_heads, 5), "num_heads: hidden_size 768 is not a multiple of num_heads 5");
  EXPECT_EQ(error_of(&ModelConfig::hidden_dropout, 1.0),
            "hidden_dropout: 1 is out of range; allowed: at least 0 and below 1");
  EXPECT_THAT(error_of(&ModelConfig::layer_norm_eps, 0.0), StartsWith("layer_norm_eps: 0 is out of range"));
  EXPECT_THAT(error_of(&ModelConfig::attention_dropout, std::numeric_limits<double>::quiet_NaN()),
              StartsWith("attention_dropout: nan is out of range"));
  for (const auto& field : integer_fields()) {
    EXPECT_THAT(error_of(field.member, -1), StartsWith(std::string(field.key) + ": -1 is out of range")) << field.key;
  }
}

TEST(HuggingFaceConfig, ReadsBackWhatItWrote) {
  ModelConfig config = named_size(Family::kBert, "mini");
  config.hidden_act = "gelu_pytorch_tanh";
  config.layer_norm_eps = 1e-5;
  config.hidden_dropout = 0.15;
  config.attention_dropout = 0;
  config.type_vocab_size = 3;
  config.max_positions = 128;
  config.vocab_size = 1001;
  expect_equal(config_of(hugging_face_config_text(config)), config);
}

TEST(HuggingFaceConfig, TextHoldsWhatTransformersWrites) {
  ModelConfig config = tiny_fixture();
  config.vocab_multiple = 8;
  config.vocab_size = 15;
  const Json document = Json::parse(hugging_face_config_text(config));
  EXPECT_EQ(document.at("architectures"), Json({"BertForPreTraining"}));
  EXPECT_EQ(document.at("model_type"), "bert");
  EXPECT_EQ(document.at("vocab_size"), 15);  // the real one
  EXPECT_EQ(document.at("num_hidden_layers"), 2);
  EXPECT_EQ(document.at("initializer_range"), 0.02);
  EXPECT_EQ(document.at("layer_norm_eps"), 1e-12);
  EXPECT_EQ(document.at("pad_token_id"), 0);
  EXPECT_EQ(document.at("tie_word_embeddings"), true);
  EXPECT_EQ(document.at("dtype"), "float32");
  EXPECT_TRUE(document.at("hidden_dropout_prob").is_number_float());  // transformers checks types
}

TEST(HuggingFaceConfig, MissingKeysHaveTheDefaultsOfTransformers) {
  expect_equal(config_of(R"({"model_type": "bert"})"), named_size(Family::kBert, "base"));
}

TEST(HuggingFaceConfig, IgnoresKeysThatDecideNothing) {
  EXPECT_EQ(config_of(R"({"model_type": "bert", "gradient_checkpointing": false, "hidden_size": 384})").hidden_size,
            384);
}

TEST(HuggingFaceConfig, AcceptsFilesFromBeforeModelTypeOnlyWhenTheyAreBerts) {
  EXPECT_EQ(config_of(R"({"hidden_size": 384, "architectures": ["BertForMaskedLM"]})").hidden_size, 384);
  EXPECT_EQ(config_of(R"({"hidden_size": 384})").hidden_size, 384);
  EXPECT_THAT(value_error_of([] { config_of(R"({"n_embd": 768})"); }), HasSubstr("model_type: is missing"));
  EXPECT_THAT(value_error_of([] { config_of(R"({"hidden_size": 768, "architectures": ["RobertaModel"]})"); }),
              HasSubstr("model_type: is missing"));
}

TEST(HuggingFaceConfig, RefusesWhatThisProgramCannotHonour) {
  EXPECT_THAT(error_with({{"model_type", "roberta"}}),
              HasSubstr("config.json: model_type: \"roberta\" is not supported; allowed: \"bert\""));
  EXPECT_THAT(error_with({{"is_decoder", true}}), HasSubstr("is_decoder: true is not supported; allowed: false"));
  EXPECT_THAT(error_with({{"add_cross_attention", true}}), HasSubstr("add_cross_attention: true is not supported"));
  EXPECT_THAT(error_with({{"position_embedding_type", "relative_key"}}),
              HasSubstr("position_embedding_type: \"relative_key\" is not supported; allowed: \"absolute\""));
  EXPECT_THAT(error_with({{"tie_word_embeddings", false}}), HasSubstr("tie_word_embeddings: false is not supported"));
  EXPECT_THAT(error_with({{"pad_token_id", 1}}), HasSubstr("pad_token_id: 1 is not supported; allowed: 0"));
  EXPECT_THAT(error_with({{"pad_token_id", nullptr}}), HasSubstr("pad_token_id: null is not supported"));
  EXPECT_THAT(error_with({{"hidden_act", "relu"}}), HasSubstr("config.json: hidden_act: \"relu\" is not known"));
}

TEST(HuggingFaceConfig, RefusesWrongTypesAndImpossibleNumbers) {
  EXPECT_THAT(error_with({{"hidden_size", "8"}}), HasSubstr("config.json: hidden_size: \"8\" is not a whole number"));
  EXPECT_THAT(error_with({{"hidden_size", 8.0}}), HasSubstr("hidden_size: 8.0 is not a whole number"));
  EXPECT_THAT(error_with({{"hidden_size", true}}), HasSubstr("hidden_size: true is not a whole number"));
  EXPECT_THAT(error_with({{"hidden_size", nullptr}}), HasSubstr("hidden_size: null is not a whole number"));
  EXPECT_THAT(error_with({{"hidden_size", 0}}), HasSubstr("hidden_size: 0 is out of range; allowed: from 1 to"));
  EXPECT_THAT(error_with({{"vocab_size", 18446744073709551615u}}),
              HasSubstr("vocab_size: 18446744073709551615 is out of range"));
  EXPECT_THAT(error_with({{"num_hidden_layers", -1}}), HasSubstr("num_hidden_layers: -1 is out of range"));
  EXPECT_THAT(error_with({{"hidden_dropout_prob", "0.1"}}), HasSubstr("hidden_dropout_prob: \"0.1\" is not a number"));
  EXPECT_THAT(error_with({{"hidden_dropout_prob", 1}}), HasSubstr("hidden_dropout_prob: 1 is out of range"));
  EXPECT_THAT(error_with({{"hidden_act", 3}}), HasSubstr("hidden_act: 3 is not a string"));
  EXPECT_THAT(error_with({{"num_attention_heads", 3}}),
              HasSubstr("num_attention_heads: hidden_size 8 is not a multiple of num_heads 3"));
}

TEST(HuggingFaceConfig, NamesAFileThatIsMissingOrDamaged) {
  const TemporaryDirectory folder;
  const std::string file = (folder / "config.json").string();
  const auto error = [&] { return value_error_of([&] { read_hugging_face_config(folder.path()); }); };
  EXPECT_THAT(error(), StartsWith(file + ": no such file"));
  write_file(file, "{\"model_type\": \"bert\",");
  EXPECT_THAT(error(), AllOf(StartsWith(file + ": is not JSON"), HasSubstr("line 1")));
  write_file(file, "[1, 2]");
  EXPECT_EQ(error(), file + ": must be a JSON object, but is of type array");
  write_file(file, "");
  EXPECT_THAT(error(), StartsWith(file + ": is not JSON"));
}

}  // namespace
}  // namespace tempo::model
