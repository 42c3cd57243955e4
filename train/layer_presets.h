// The named sets of layer options (docs/operators.md has what each keeps).
//
// Not for: keys and their rules (run_config.h). Thread rule: functions without state.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layers/modules.h"

namespace tempo::train {

// The values of the keys by their names.
inline const std::vector<std::pair<std::string, layers::GeluOption>> kGeluNames = {
    {"baseline", layers::GeluOption::kBaseline},
    {"tempo", layers::GeluOption::kTempo},
    {"recompute", layers::GeluOption::kRecompute}};
inline const std::vector<std::pair<std::string, layers::NormOption>> kNormNames = {
    {"baseline", layers::NormOption::kBaseline},
    {"tempo", layers::NormOption::kTempo},
    {"recompute", layers::NormOption::kRecompute}};
inline const std::vector<std::pair<std::string, layers::DropoutOption>> kDropoutNames = {
    {"baseline", layers::DropoutOption::kBaseline},
    {"tempo", layers::DropoutOption::kTempo},
    {"regenerate", layers::DropoutOption::kRegenerate}};
inline const std::vector<std::pair<std::string, layers::AttentionOption>> kAttentionNames = {
    {"baseline", layers::AttentionOption::kBaseline},
    {"tempo", layers::AttentionOption::kTempo},
    {"flash", layers::AttentionOption::kFlash}};
inline const std::vector<std::pair<std::string, layers::RecomputeOption>> kRecomputeNames = {
    {"none", layers::RecomputeOption::kNone},
    {"ffn", layers::RecomputeOption::kFfn},
    {"block", layers::RecomputeOption::kBlock}};
inline const std::vector<std::pair<std::string, layers::MaskKeep>> kMaskNames = {{"packed", layers::MaskKeep::kBits},
                                                                                 {"byte", layers::MaskKeep::kBytes}};

/// baseline, tempo, lean, checkpoint.
std::vector<std::string> layer_preset_names();

/// Throws c10::ValueError for a name that is none of them.
layers::LayerOptions layer_preset(const std::string& name);

/// Whether LayerOptions::masks has an effect.
bool uses_masks(const layers::LayerOptions& options);

/// "gelu recompute, layer_norm recompute, ...": the options by their values' names.
std::string text_of(const layers::LayerOptions& options);

}  // namespace tempo::train
