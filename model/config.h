// What a model is: the numbers that decide its architecture, named sizes, and Hugging Face's config.json.
//
// Not for: how its layers keep memory (layers/modules.h) or how it is trained (train/run_config.h).
// Thread rule: values; free functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/bounds.h"

namespace tempo::model {

enum class Family { kBert };
enum class Activation { kGelu, kGeluTanh };

/// Architecture of one model. The defaults are BERT-base's (Devlin et al. 2019, table in section 3).
struct ModelConfig {
  Family family = Family::kBert;
  std::int64_t hidden_size = 768;
  std::int64_t num_layers = 12;
  std::int64_t num_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t vocab_size = 30522;  ///< real vocabulary, without padding rows
  std::int64_t vocab_multiple = 1;  ///< the tables are padded to a multiple of this; padded rows get no probability
  std::int64_t max_positions = 512;
  std::int64_t type_vocab_size = 2;
  std::string hidden_act = "gelu";  ///< gelu | gelu_new | gelu_pytorch_tanh, kept as written for config.json
  double layer_norm_eps = 1e-12;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;

  std::int64_t padded_vocab_size() const { return (vocab_size + vocab_multiple - 1) / vocab_multiple * vocab_multiple; }
  std::int64_t head_size() const { return hidden_size / num_heads; }

  /// Throws c10::ValueError for a hidden_act that is not in activation_names().
  Activation activation() const;
};

/// One number of the architecture, declared once: it is checked, read from config.json and written to it, read from a
/// run's YAML (section `model`) and described in --help by this entry.
template <typename T>
struct NumberField {
  const char* key;               ///< name of the member, and in the section `model`
  const char* hugging_face_key;  ///< name in config.json; nullptr where it has none
  T ModelConfig::*member;
  Bounds<T> bounds;
  bool belongs_to_weights;  ///< weights that were trained with another value give another function
  const char* sentence;
};

/// The whole numbers and the real numbers of ModelConfig, in its order.
const std::vector<NumberField<std::int64_t>>& integer_fields();
const std::vector<NumberField<double>>& real_fields();

/// The values that hidden_act may have.
std::vector<std::string> activation_names();

/// The named sizes of a family, for messages: {"tiny", "mini", ...}.
std::vector<std::string> size_names(Family family);

/// The architecture called `size`. Sizes are those of google-research/bert (tiny 2/128 ... large 24/1024).
/// Throws c10::ValueError naming the sizes there are.
ModelConfig named_size(Family family, const std::string& size);

/// Why the numbers cannot make a model.
struct Fault {
  std::string key;   ///< the member at fault
  std::string text;  ///< its value and what is allowed
};

/// The first fault: a number out of its bounds, hidden_size not a multiple of num_heads, an activation that is not
/// known.
std::optional<Fault> find_fault(const ModelConfig& config);

/// Throws c10::ValueError with the first fault.
void validate(const ModelConfig& config);

/// Reads the `config.json` of a Hugging Face folder (or of a checkpoint, which has the same file).
/// Keys it lacks have transformers' defaults (BertConfig); keys that decide nothing here are ignored. A file without
/// model_type (before 2020) is taken when it states hidden_size and its architectures, if any, are BERT's.
/// Throws c10::ValueError naming file and key for a missing file, another model_type, a wrong type, or a setting this
/// program cannot honour (a decoder, untied embeddings, relative positions, a pad token other than 0).
ModelConfig read_hugging_face_config(const std::filesystem::path& folder);

/// The text of a `config.json` that transformers reads back as BertForPreTraining, with the real vocabulary.
std::string hugging_face_config_text(const ModelConfig& config);

/// Parameters of the model, tied tensors once, without vocabulary padding rows unless vocab_multiple adds them.
std::int64_t count_parameters(const ModelConfig& config);

}  // namespace tempo::model
