#include "model/hf_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "model/durable_file.h"

namespace tempo::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"vocab.txt", "tokenizer.json", "tokenizer_config.json",
                                           "special_tokens_map.json", "added_tokens.json"};
// Heads that a file may lack as a whole: a bare BertModel has none, a BertForMaskedLM only the second.
constexpr const char* kHeads[] = {"bert.pooler.", "cls.predictions.", "cls.seq_relationship."};
// The masked-token head's decoder shares the word embeddings, and its bias is cls.predictions.bias.
constexpr const char* kDecoderWeight = "cls.predictions.decoder.weight";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";
constexpr const char* kWordEmbeddings = "bert.embeddings.word_embeddings.weight";
constexpr const char* kPredictionBias = "cls.predictions.bias";

bool starts_with(const std::string& text, std::string_view start) { return text.compare(0, start.size(), start) == 0; }

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// The current name of a tensor that an older or a bare file calls `key`.
std::string current_name(const std::string& key, bool file_has_prefix) {
  std::string name = key;
  if (ends_with(name, "LayerNorm.gamma")) name.replace(name.size() - 5, 5, "weight");
  if (ends_with(name, "LayerNorm.beta")) name.replace(name.size() - 4, 4, "bias");
  const bool in_encoder =
      starts_with(name, "embeddings.") || starts_with(name, "encoder.") || starts_with(name, "pooler.");
  return !file_has_prefix && in_encoder ? "bert." + name : name;
}

bool is_buffer(const std::string& name) {
  return ends_with(name, "embeddings.position_ids") || ends_with(name, "embeddings.token_type_ids");
}

const char* head_of(const std::string& name) {
  for (const char* head : kHeads) {
    if (starts_with(name, head)) return head;
  }
  return nullptr;
}

/// The file's keys by the current name of what they hold; buffers go to report.ignored.
std::map<std::string, std::string> keys_by_name(const SafetensorsReader& reader, const fs::path& file,
                                                LoadReport& report) {
  const auto& tensors = reader.tensors();
  const bool has_prefix = std::any_of(tensors.begin(), tensors.end(),
                                      [](const auto& tensor) { return starts_with(tensor.first, "bert."); });
  std::map<std::string, std::string> keys;
  for (const auto& [key, info] : tensors) {
    const std::string name = current_name(key, has_prefix);
    if (is_buffer(name)) {
      report.ignored.push_back(key);
      continue;
    }
    const auto [place, is_new] = keys.emplace(name, key);
    TORCH_CHECK_VALUE(is_new, file.string(), ": ", key, " and ", place->second, " are two spellings of one tensor");
  }
  return keys;
}

/// A copy of a tied tensor must equal the original: training moves only one.
void drop_tied_copy(const SafetensorsReader& reader, const fs::path& file, std::map<std::string, std::string>& keys,
                    const char* copy, const char* original, LoadReport& report) {
  const auto found = keys.find(copy);
  if (found == keys.end()) return;
  const auto first = keys.find(original);
  if (first == keys.end()) {  // only the copy was written: it is the original
    keys.emplace(original, found->second);
  } else {
    const at::Tensor one = reader.read(found->second);
    const at::Tensor other = reader.read(first->second);
    TORCH_CHECK_VALUE(one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() && at::equal(one, other),
                      file.string(), ": ", found->second, " differs from ", first->second,
                      ", which this model ties to it; an untied decoder is not supported");
    report.ignored.push_back(found->second);
  }
  keys.erase(copy);
}

/// Copies one tensor. A file holds the vocabulary as it is or, from a checkpoint, padded to some multiple; so does the model.
void copy_parameter(const SafetensorsReader& reader, const std::string& key, const Parameter& parameter,
                    std::int64_t vocab_size) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = parameter.value.detach();
  const std::vector<std::int64_t>& shape = reader.tensors().at(key).shape;
  const bool has_vocabulary = parameter.name == kWordEmbeddings || parameter.name == kPredictionBias;
  if (!has_vocabulary || shape.empty() || shape[0] < vocab_size || shape[0] == value.size(0)) {
    reader.copy_to(key, value);
    return;
  }
  std::vector<std::int64_t> tail(shape.begin() + 1, shape.end());
  TORCH_CHECK_VALUE(value.sizes().slice(1) == at::IntArrayRef(tail), "tensor ", key, " has shape ", shape, ", but ",
                    parameter.name, " needs ", value.sizes());
  value.zero_();
  value.narrow(0, 0, vocab_size).copy_(reader.read(key).narrow(0, 0, vocab_size));
}

/// Names of the parameters that no key holds; throws unless they are whole heads.
std::vector<std::string> missing_heads(const Model& model, const std::map<std::string, std::string>& keys,
                                       const fs::path& file) {
  const auto head_has_keys = [&](const char* head) {
    return std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return starts_with(key.first, head); });
  };
  std::vector<std::string> missing;
  for (const Parameter& parameter : model.parameters().all()) {
    if (keys.count(parameter.name) != 0) continue;
    const char* head = head_of(parameter.name);
    TORCH_CHECK_VALUE(head != nullptr && !head_has_keys(head), file.string(), ": tensor ", parameter.name,
                      " is missing");
    missing.push_back(parameter.name);
  }
  return missing;
}

}  // namespace

LoadReport load_weights(Model& model, const fs::path& folder, std::uint64_t seed) {
  const fs::path file = folder / kWeightsFile;
  const SafetensorsReader reader(file);
  LoadReport report;
  std::map<std::string, std::string> keys = keys_by_name(reader, file, report);
  drop_tied_copy(reader, file, keys, kDecoderWeight, kWordEmbeddings, report);
  drop_tied_copy(reader, file, keys, kDecoderBias, kPredictionBias, report);
  for (const auto& [name, key] : keys) {
    TORCH_CHECK_VALUE(model.parameters().find(name) != nullptr, file.string(), ": tensor ", key,
                      " belongs to no parameter of a ", model.config().num_layers, "-layer BERT");
  }
  report.initialised = missing_heads(model, keys, file);
  model.parameters().initialise(seed, report.initialised);
  for (const auto& [name, key] : keys) {
    copy_parameter(reader, key, *model.parameters().find(name), model.config().vocab_size);
  }
  return report;
}

std::vector<std::pair<std::string, at::Tensor>> named_weights(const Model& model, VocabularyRows rows) {
  std::vector<std::pair<std::string, at::Tensor>> weights;
  for (const Parameter& parameter : model.parameters().all()) {
    const at::Tensor value = parameter.value.detach();
    weights.emplace_back(parameter.name,
                         rows == VocabularyRows::kReal ? value.narrow(0, 0, parameter.num_real_rows) : value);
  }
  return weights;
}

TokenizerFiles read_tokenizer_files(const fs::path& folder) {
  TokenizerFiles files;
  for (const char* name : kTokenizerFiles) {
    std::error_code error;
    if (folder.empty() || !fs::is_regular_file(folder / name, error)) continue;
    std::ifstream file(folder / name, std::ios::binary);
    files.emplace_back(name, std::string(std::istreambuf_iterator<char>(file), {}));
    TORCH_CHECK(!file.bad(), (folder / name).string(), " cannot be read");
  }
  return files;
}

void save_hugging_face(const Model& model, const fs::path& folder, const TokenizerFiles& tokenizer) {
  DurableFolder target(folder);
  for (const auto& [name, content] : tokenizer) write_durable_text(target.path() / name, content);
  write_durable_text(target.path() / kConfigFile, hugging_face_config_text(model.config()));
  write_safetensors(target.path() / kWeightsFile, named_weights(model, VocabularyRows::kReal));
  target.commit();
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kStateFile, error) && fs::is_regular_file(folder / kCompleteFile, error);
}

}  // namespace tempo::model
