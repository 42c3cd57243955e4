// What the generated header says about the program, as train/ takes it.
//
// Not for: facts of the running process (train/environment.h). Thread rule: constant.
#pragma once

#include "tempo_version.h"
#include "train/environment.h"

namespace tempo::apps {

inline train::ProgramVersion program_version() {
  return {version::kVersion, version::kGitRevision, version::kTorchVersion, version::kCudaVersion,
          version::kCudaArchitectures};
}

}  // namespace tempo::apps
