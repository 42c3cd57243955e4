// config.json of a Hugging Face folder: reading and writing (declared in model/config.h).
#include <c10/util/Exception.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/config.h"

namespace tempo::model {
namespace {

using Json = nlohmann::json;

constexpr const char* kFileName = "config.json";
constexpr const char* kModelType = "bert";
constexpr double kInitializerRange = 0.02;  // the normal distribution that every weight of BERT starts from

/// config.json of one folder, with typed access whose errors name the file and the key.
class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& folder) : path_(folder / kFileName) {
    std::error_code ignored;
    TORCH_CHECK_VALUE(std::filesystem::is_regular_file(path_, ignored), path_.string(),
                      ": no such file; a Hugging Face folder or a checkpoint holds one");
    std::ifstream stream(path_);
    TORCH_CHECK_VALUE(stream.good(), path_.string(), ": cannot be read");
    try {
      document_ = Json::parse(stream);
    } catch (const Json::exception& error) {
      TORCH_CHECK_VALUE(false, path_.string(), ": is not JSON: ", error.what());
    }
    TORCH_CHECK_VALUE(document_.is_object(), path_.string(), ": must be a JSON object, but is of type ",
                      document_.type_name());
  }

  bool has(const char* key) const { return document_.contains(key); }

  template <typename... Words>
  [[noreturn]] void fail(const char* key, const Words&... words) const {
    TORCH_CHECK_VALUE(false, path_.string(), ": ", key, ": ", words...);
  }

  std::int64_t integer(const char* key, const Bounds<std::int64_t>& bounds) const {
    const Json& value = document_.at(key);
    if (!value.is_number_integer()) fail(key, value.dump(), " is not a whole number");
    // An unsigned number past 2^63 would wrap around.
    const bool too_large =
        value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(bounds.highest);
    if (too_large || !bounds.contains(value.get<std::int64_t>())) {
      fail(key, value.dump(), " is out of range; allowed: ", bounds.text());
    }
    return value.get<std::int64_t>();
  }

  double real(const char* key, const Bounds<double>& bounds) const {
    const Json& value = document_.at(key);
    if (!value.is_number()) fail(key, value.dump(), " is not a number");
    if (!bounds.contains(value.get<double>())) fail(key, value.dump(), " is out of range; allowed: ", bounds.text());
    return value.get<double>();
  }

  std::string text(const char* key) const {
    const Json& value = document_.at(key);
    if (!value.is_string()) fail(key, value.dump(), " is not a string");
    return value.get<std::string>();
  }

  /// A key that may be missing, but has no other value than this.
  void allow_only(const char* key, const Json& allowed) const {
    if (!has(key) || document_.at(key) == allowed) return;
    fail(key, document_.at(key).dump(), " is not supported; allowed: ", allowed.dump());
  }

  /// The first entry of `architectures`, or nothing.
  std::string architecture() const {
    const auto found = document_.find("architectures");
    if (found == document_.end() || !found->is_array() || found->empty() || !found->front().is_string()) return {};
    return found->front().get<std::string>();
  }

 private:
  std::filesystem::path path_;
  Json document_;
};

void refuse_other_models(const ConfigFile& file) {
  if (!file.has("model_type")) {
    const std::string architecture = file.architecture();
    const bool is_bert = architecture.empty() || architecture.rfind("Bert", 0) == 0;
    if (!is_bert || !file.has("hidden_size")) file.fail("model_type", "is missing; allowed: \"", kModelType, "\"");
  }
  file.allow_only("model_type", kModelType);
  file.allow_only("is_decoder", false);
  file.allow_only("add_cross_attention", false);
  file.allow_only("position_embedding_type", "absolute");
  file.allow_only("tie_word_embeddings", true);
  file.allow_only("pad_token_id", 0);
}

/// The name in config.json of a member of ModelConfig.
std::string hugging_face_name(const std::string& key) {
  for (const auto& field : integer_fields()) {
    if (key == field.key && field.hugging_face_key != nullptr) return field.hugging_face_key;
  }
  return key;
}

}  // namespace

ModelConfig read_hugging_face_config(const std::filesystem::path& folder) {
  const ConfigFile file(folder);
  refuse_other_models(file);
  ModelConfig config;  // its defaults are BertConfig's too
  for (const auto& field : integer_fields()) {
    const char* key = field.hugging_face_key;
    if (key != nullptr && file.has(key)) config.*field.member = file.integer(key, field.bounds);
  }
  for (const auto& field : real_fields()) {
    const char* key = field.hugging_face_key;
    if (key != nullptr && file.has(key)) config.*field.member = file.real(key, field.bounds);
  }
  if (file.has("hidden_act")) config.hidden_act = file.text("hidden_act");
  if (const auto fault = find_fault(config)) file.fail(hugging_face_name(fault->key).c_str(), fault->text);
  return config;
}

std::string hugging_face_config_text(const ModelConfig& config) {
  Json document = {
      {"add_cross_attention", false},
      {"architectures", {"BertForPreTraining"}},
      {"bos_token_id", nullptr},
      {"classifier_dropout", nullptr},
      {"dtype", "float32"},
      {"eos_token_id", nullptr},
      {"hidden_act", config.hidden_act},
      {"initializer_range", kInitializerRange},
      {"is_decoder", false},
      {"model_type", kModelType},
      {"pad_token_id", 0},
      {"tie_word_embeddings", true},
      {"use_cache", true},
  };
  for (const auto& field : integer_fields()) {
    if (field.hugging_face_key != nullptr) document[field.hugging_face_key] = config.*field.member;
  }
  for (const auto& field : real_fields()) {
    if (field.hugging_face_key != nullptr) document[field.hugging_face_key] = config.*field.member;
  }
  return document.dump(2) + "\n";
}

}  // namespace tempo::model
