#include "model/config.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <type_traits>

namespace tempo::model {
namespace {

// Upper bounds keep every product of sizes inside 64 bits and every coordinate inside dropout's counter
// (layers/math/dropout.h: 12 bits for the site and the head, 20 for the position); no model comes near them.
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxLayers = 1000;
constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxPositions = 1 << 20;
constexpr std::int64_t kMaxVocabSize = 2'147'483'647;  // token ids are stored as int32

constexpr std::int64_t kIntermediatePerHidden = 4;

struct NamedSize {
  const char* name;
  std::int64_t num_layers;
  std::int64_t hidden_size;
  std::int64_t num_heads;
};

// google-research/bert: README (24 smaller models) and Devlin et al. 2019.
const std::vector<NamedSize>& sizes_of(Family family) {
  static const std::vector<NamedSize> bert = {
      {"tiny", 2, 128, 2},   {"mini", 4, 256, 4},   {"small", 4, 512, 8},
      {"medium", 8, 512, 8}, {"base", 12, 768, 12}, {"large", 24, 1024, 16},
  };
  switch (family) {
    case Family::kBert:
      return bert;
  }
  TORCH_INTERNAL_ASSERT(false, "unknown family");
}

struct NamedActivation {
  const char* name;
  Activation activation;
};

constexpr NamedActivation kActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
};

template <typename T>
std::optional<Fault> find_out_of_bounds(const ModelConfig& config, const std::vector<NumberField<T>>& fields) {
  for (const NumberField<T>& field : fields) {
    const T value = config.*field.member;
    if (field.bounds.contains(value)) continue;
    std::string text;
    if constexpr (std::is_floating_point_v<T>) {
      text = number_text(value);
    } else {
      text = std::to_string(value);
    }
    return Fault{field.key, text + " is out of range; allowed: " + field.bounds.text()};
  }
  return std::nullopt;
}

}  // namespace

const std::vector<NumberField<std::int64_t>>& integer_fields() {
  using C = ModelConfig;
  static const std::vector<NumberField<std::int64_t>> fields = {
      {"hidden_size",
       "hidden_size",
       &C::hidden_size,
       {1, kMaxWidth},
       true,
       "Width of the hidden states, a multiple of num_heads."},
      {"num_layers", "num_hidden_layers", &C::num_layers, {1, kMaxLayers}, true, "Number of transformer blocks."},
      {"num_heads",
       "num_attention_heads",
       &C::num_heads,
       {1, kMaxHeads},
       true,
       "Number of attention heads in each block."},
      {"intermediate_size",
       "intermediate_size",
       &C::intermediate_size,
       {1, 16 * kMaxWidth},
       true,
       "Width between the two feed-forward products."},
      {"vocab_size",
       "vocab_size",
       &C::vocab_size,
       {1, kMaxVocabSize},
       true,
       "Number of token ids, without padding rows."},
      {"max_positions",
       "max_position_embeddings",
       &C::max_positions,
       {1, kMaxPositions},
       true,
       "Length of the position table: the longest sequence that the model can read."},
      {"type_vocab_size", "type_vocab_size", &C::type_vocab_size, {1, kMaxPositions}, true, "Number of segment types."},
      {"vocab_multiple",
       nullptr,
       &C::vocab_multiple,
       {1, kMaxWidth},
       false,
       "The token tables are padded to a multiple of this; the padding rows never get probability."},
  };
  return fields;
}

const std::vector<NumberField<double>>& real_fields() {
  using C = ModelConfig;
  static const std::vector<NumberField<double>> fields = {
      {"layer_norm_eps",
       "layer_norm_eps",
       &C::layer_norm_eps,
       {0, 1, true, true},
       true,
       "Added to the variance in every layer normalisation."},
      {"hidden_dropout",
       "hidden_dropout_prob",
       &C::hidden_dropout,
       {0, 1, false, true},
       false,
       "Probability to drop an element after the embeddings, attention and feed-forward layers."},
      {"attention_dropout",
       "attention_probs_dropout_prob",
       &C::attention_dropout,
       {0, 1, false, true},
       false,
       "Probability to drop an attention probability."},
  };
  return fields;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const NamedActivation& known : kActivations) names.emplace_back(known.name);
  return names;
}

Activation ModelConfig::activation() const {
  for (const NamedActivation& known : kActivations) {
    if (hidden_act == known.name) return known.activation;
  }
  TORCH_CHECK_VALUE(false, "hidden_act: \"", hidden_act,
                    "\" is not known; allowed: ", c10::Join(", ", activation_names()));
}

std::vector<std::string> size_names(Family family) {
  std::vector<std::string> names;
  for (const NamedSize& size : sizes_of(family)) names.emplace_back(size.name);
  return names;
}

ModelConfig named_size(Family family, const std::string& size) {
  for (const NamedSize& known : sizes_of(family)) {
    if (size != known.name) continue;
    ModelConfig config;
    config.family = family;
    config.num_layers = known.num_layers;
    config.hidden_size = known.hidden_size;
    config.num_heads = known.num_heads;
    config.intermediate_size = kIntermediatePerHidden * known.hidden_size;
    return config;
  }
  TORCH_CHECK_VALUE(false, "size: \"", size, "\" is not known; allowed: ", c10::Join(", ", size_names(family)));
}

std::optional<Fault> find_fault(const ModelConfig& config) {
  if (auto fault = find_out_of_bounds(config, integer_fields())) return fault;
  if (auto fault = find_out_of_bounds(config, real_fields())) return fault;
  if (config.hidden_size % config.num_heads != 0) {
    return Fault{"num_heads", "hidden_size " + std::to_string(config.hidden_size) + " is not a multiple of num_heads " +
                                  std::to_string(config.num_heads)};
  }
  for (const NamedActivation& known : kActivations) {
    if (config.hidden_act == known.name) return std::nullopt;
  }
  return Fault{"hidden_act",
               "\"" + config.hidden_act + "\" is not known; allowed: " + c10::Join(", ", activation_names())};
}

void validate(const ModelConfig& config) {
  const std::optional<Fault> fault = find_fault(config);
  TORCH_CHECK_VALUE(!fault, fault->key, ": ", fault->text);
}

std::int64_t count_parameters(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  const std::int64_t vocab = config.padded_vocab_size();
  const std::int64_t square_linear = hidden * hidden + hidden;
  const std::int64_t layer_norm = 2 * hidden;
  const std::int64_t embeddings = (vocab + config.max_positions + config.type_vocab_size) * hidden + layer_norm;
  const std::int64_t attention = 4 * square_linear + layer_norm;  // query, key, value, output
  const std::int64_t feed_forward = (hidden * inner + inner) + (inner * hidden + hidden) + layer_norm;
  const std::int64_t pooler = square_linear;
  const std::int64_t token_head =
      square_linear + layer_norm + vocab;  // transform; the decoder is the tied table + a bias
  const std::int64_t next_sentence_head = 2 * hidden + 2;
  return embeddings + config.num_layers * (attention + feed_forward) + pooler + token_head + next_sentence_head;
}

}  // namespace tempo::model
