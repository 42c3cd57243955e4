// The named sets of layer options (docs/operators.md has what each keeps).
//
// Not for: keys and their rules (run_config.h). Thread rule: functions without state.
#pragma once

#include <string>
#include <vector>

#include "layers/modules.h"

namespace tempo::train {

/// baseline, tempo, lean, checkpoint.
std::vector<std::string> layer_preset_names();

/// Throws c10::ValueError for a name that is none of them.
layers::LayerOptions layer_preset(const std::string& name);

/// Whether LayerOptions::masks has an effect.
bool uses_masks(const layers::LayerOptions& options);

/// "gelu recompute, layer_norm recompute, ...": the options by their values' names.
std::string text_of(const layers::LayerOptions& options);

}  // namespace tempo::train
