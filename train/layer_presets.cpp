#include "train/layer_presets.h"

#include <c10/util/Exception.h>

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
  const char* const gelu[] = {"baseline", "tempo", "recompute"};
  const char* const norm[] = {"baseline", "tempo", "recompute"};
  const char* const dropout[] = {"baseline", "tempo", "regenerate"};
  const char* const attention[] = {"baseline", "tempo", "flash"};
  const char* const recompute[] = {"none", "ffn", "block"};
  std::string text = std::string("gelu ") + gelu[static_cast<int>(options.gelu)] + ", layer_norm " +
                     norm[static_cast<int>(options.layer_norm)] + ", dropout " +
                     dropout[static_cast<int>(options.dropout)] + ", attention " +
                     attention[static_cast<int>(options.attention)] + ", recompute " +
                     recompute[static_cast<int>(options.recompute)];
  if (uses_masks(options)) text += options.masks == MaskKeep::kBits ? ", masks packed" : ", masks byte";
  return text;
}

}  // namespace tempo::train
