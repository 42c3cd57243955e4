// The text of a run's environment.json: versions and whatever else decides its numbers, and nothing about the host (no
// name, no path, no user, no time), so that equal machines and programs give equal files.
//
// Not for: writing the file (run_dir.h), comparing two (run_comparison.h). Thread rule: values; functions without
// state.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace tempo::train {

/// The file's name in a run directory.
inline constexpr const char* kEnvironmentFile = "environment.json";

/// What the build says about the program (tempo_version.h); only apps/ knows it.
struct ProgramVersion {
  std::string tempo;
  std::string git_revision;
  std::string libtorch;
  std::string cuda;                ///< the compiler's; "none" in a build without CUDA
  std::string cuda_architectures;  ///< "80 90"; empty without CUDA
};

struct EnvironmentFacts {
  ProgramVersion program;
  std::string compiler;        ///< of C++, with its version
  std::string cpu_capability;  ///< the instruction set that ATen's loops use
  int threads = 0;             ///< of ATen's pool
  std::string device;          ///< "cpu", or the GPU's name
  std::string hdf5;
  std::string icu;
};

/// The facts of this process for a run on `device`. Call it when the number of threads has been set.
/// Throws c10::Error when CUDA does not know the device.
EnvironmentFacts environment_facts(const ProgramVersion& program, c10::Device device);

/// One JSON object with one fact a line, always in the same order (docs/formats.md, "environment.json").
std::string environment_text(const EnvironmentFacts& facts);

}  // namespace tempo::train
