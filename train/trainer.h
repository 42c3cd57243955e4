// A whole pre-training run in one process: from a checked configuration to an exported model.
//
// Order: data and model are opened and checked, then the run directory appears, then the loop runs, then export/ is written. So a
// mistake in the input leaves nothing behind.
// Not for: the arithmetic of a step (train_step.h). Thread rule: one run per process.
#pragma once

#include "model/hf_weights.h"
#include "train/environment.h"
#include "train/run_config.h"

namespace tempo::train {

/// What a dry run found, for the person who asked: a few lines of text.
std::string check_run(const RunConfig& config);

/// Trains. Logs to stderr and to the run directory. Throws c10::ValueError for the user's mistakes before anything is written,
/// c10::Error when a file cannot be written or a loss is no longer finite.
void train(const RunConfig& config, const ProgramVersion& program);

/// Goes on with the run in config.run.dir (load_resumed_config) from its newest intact checkpoint, bit for bit as if it had never
/// ended; `changes` are said, and another environment is warned of. Says so where it is finished. Throws c10::ValueError where there is nothing to go on from.
void resume(const RunConfig& config, const std::vector<ConfigChange>& changes, const ProgramVersion& program);

/// Says aloud what loading weights from `folder` did besides copying tensors: heads that start from the seed, tensors not needed.
void log_load_report(const model::LoadReport& report, const std::filesystem::path& folder);

}  // namespace tempo::train
