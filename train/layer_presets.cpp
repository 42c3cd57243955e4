#include "train/layer_presets.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace tempo::train {
namespace {

using layers::AttentionOption;
using layers::DropoutOption;
using layers::GeluOption;
using layers::LayerOptions;
using layers::MaskKeep;
using layers::NormOption;
using layers::RecomputeOption;

const std::vector<std::pair<std::string, LayerOptions>>& presets() {
  static const std::vector<std::pair<std::string, LayerOptions>> all = {
      {"baseline", {}},
      {"tempo",
       {GeluOption::kTempo, NormOption::kTempo, DropoutOption::kTempo, AttentionOption::kTempo, RecomputeOption::kNone,
        MaskKeep::kBits}},
      {"lean",
       {GeluOption::kRecompute, NormOption::kRecompute, DropoutOption::kRegenerate, AttentionOption::kFlash,
        RecomputeOption::kNone, MaskKeep::kBits}},
      {"checkpoint",
       {GeluOption::kBaseline, NormOption::kBaseline, DropoutOption::kBaseline, AttentionOption::kBaseline,
        RecomputeOption::kBlock, MaskKeep::kBits}}};
  return all;
}

template <typename Enum>
std::string name_of(Enum value, const std::vector<std::pair<std::string, Enum>>& names) {
  return std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.second == value; })->first;
}

}  // namespace

std::vector<std::string> layer_preset_names() {
  std::vector<std::string> names;
  for (const auto& preset : presets()) names.push_back(preset.first);
  return names;
}

LayerOptions layer_preset(const std::string& name) {
  for (const auto& [known, options] : presets()) {
    if (known == name) return options;
  }
  TORCH_CHECK_VALUE(false, "layers.preset: ", name, " is unknown");
}

bool uses_masks(const LayerOptions& options) {
  return options.gelu == GeluOption::kTempo || options.dropout == DropoutOption::kTempo;
}

std::string text_of(const LayerOptions& options) {
  std::string text = "gelu " + name_of(options.gelu, kGeluNames) + ", layer_norm " +
                     name_of(options.layer_norm, kNormNames) + ", dropout " + name_of(options.dropout, kDropoutNames) +
                     ", attention " + name_of(options.attention, kAttentionNames) + ", recompute " +
                     name_of(options.recompute, kRecomputeNames);
  if (uses_masks(options)) text += ", masks " + name_of(options.masks, kMaskNames);
  return text;
}

}  // namespace tempo::train
