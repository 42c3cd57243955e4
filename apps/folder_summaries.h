// What `tempo inspect` says about folders: models, checkpoints and runs.
//
// Not for: shards (inspect.cpp), printing. Thread rule: functions without state.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace tempo::apps {

/// A JSON object with "kind" model, checkpoint or run, by what the folder holds: a run has config.yaml, a checkpoint
/// state.json and COMPLETE, a model config.json. "tensors" and "optimizer_tensors" are
/// {name: {shape, dtype}}.
/// Throws c10::ValueError naming the folder that is none of these, or the file that cannot be understood.
nlohmann::ordered_json folder_summary(const std::filesystem::path& folder);

}  // namespace tempo::apps
