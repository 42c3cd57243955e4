// `tempo prepare` as one call: configuration -> a folder of shards, with progress and a manifest.
//
// Not for: how rows are made (data/prepare.h), the folder's life (shard_folder.h). Thread rule: one call at a time.
#pragma once

#include <string>

#include "data/prepare.h"
#include "train/run_config.h"

namespace tempo::train {

/// Makes the shards. Progress goes to stderr. Returns the summary for a person. Throws c10::ValueError for the user's mistakes,
/// c10::Error when something cannot be written; then the folder is as it was.
std::string prepare_shards(const RunConfig& config);

/// What prepare_shards would do, without reading the text.
std::string check_preparation(const RunConfig& config);

/// The closing lines: documents, sentences, rows, tokens, fill, masked share, and what was unusual.
std::string summary_text(const RunConfig& config, const data::PrepareSummary& summary);

}  // namespace tempo::train
