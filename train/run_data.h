// The data of a run, opened and checked: what it trains on and what is held out.
//
// Not for: patterns of paths (run_config.h), reading (data/dataset.h). Thread rule: one owner.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "train/run_config.h"

namespace tempo::train {

struct RunData {
  std::unique_ptr<data::Dataset> training;
  std::unique_ptr<data::Dataset> validation;  ///< null where data.validation is not set
  std::filesystem::path tokenizer_folder;  ///< with the tokenizer's files, for the export; empty where there are none
};

/// Opens both sets and checks all their rows, which is logged when it takes long. Held-out sequences are as long as those of the
/// training set and come in the order of their numbers. Once a signal asks for the end (stop_request.h) rows stay unchecked, and
/// nothing may be trained.
/// Throws c10::ValueError naming the file or the key: what Dataset refuses, sequences of another length or too long
/// for the model, a file that is in both sets, another vocabulary.
RunData open_data(const RunConfig& config);

}  // namespace tempo::train
