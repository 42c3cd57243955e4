// Weights in and out: Hugging Face folders and the model part of checkpoints.
//
// A model folder holds config.json and model.safetensors; beside them may lie the files of a tokenizer, which travel along. A
// checkpoint folder holds the same two files with the vocabulary as it is padded in training, state.json and, written last,
// COMPLETE (docs/formats.md).
// Not for: optimizer state (train/). Thread rule: one folder, one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/safetensors.h"

namespace tempo::model {

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kCompleteFile = "COMPLETE";

/// Names and contents of a tokenizer's files.
using TokenizerFiles = std::vector<std::pair<std::string, std::string>>;

/// vocab.txt, tokenizer.json and the like, those that `folder` has; none where it is empty or not there.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& folder);

/// What loading did besides copying tensors, to be said aloud.
struct LoadReport {
  std::vector<std::string>
      initialised;                   ///< parameters of heads that the file does not have; they got their first values
  std::vector<std::string> ignored;  ///< buffers and copies of tied tensors that need no loading
};

/// Loads every parameter of `model` from FOLDER/model.safetensors. Understood besides the current names: LayerNorm.gamma/beta,
/// a missing `bert.` prefix, position_ids and token_type_ids buffers, copies of the tied decoder. A head (pooler, masked-token head,
/// next-sentence head) that is missing as a whole starts from `seed`. The file may have the real or the padded vocabulary.
/// Throws c10::ValueError naming file and tensor for anything else that is missing, unknown, misshapen, or a "tied" copy
/// that differs.
LoadReport load_weights(Model& model, const std::filesystem::path& folder, std::uint64_t seed);

/// The named tensors of a model: with vocabulary padding as in training, or cut to the real vocabulary.
enum class VocabularyRows { kPadded, kReal };
std::vector<std::pair<std::string, at::Tensor>> named_weights(const Model& model, VocabularyRows rows);

/// Writes config.json and model.safetensors that transformers loads as BertForPreTraining with no missing or unexpected key,
/// and the tokenizer's files beside them. The folder must not exist; it appears when it is complete.
void save_hugging_face(const Model& model, const std::filesystem::path& folder, const TokenizerFiles& tokenizer);

/// True for a folder that holds a whole checkpoint (train/checkpoint.h); what is in it is not looked at.
bool is_checkpoint(const std::filesystem::path& folder);

}  // namespace tempo::model
