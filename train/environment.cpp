#include "train/environment.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>

#include "data/sentences.h"
#include "data/shard.h"
#if defined(TEMPO_HAS_CUDA)
#include "train/gpu_name.h"
#endif

namespace tempo::train {
namespace {

std::string compiler_text() {
#if defined(__clang__)
  constexpr int kParts[] = {__clang_major__, __clang_minor__, __clang_patchlevel__};
  const std::string name = "Clang ";
#else
  constexpr int kParts[] = {__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__};
  const std::string name = "GCC ";
#endif
  return name + std::to_string(kParts[0]) + "." + std::to_string(kParts[1]) + "." + std::to_string(kParts[2]);
}

std::string device_text(c10::Device device) {
  if (device.is_cpu()) return "cpu";
#if defined(TEMPO_HAS_CUDA)
  if (device.is_cuda()) return gpu_name(device.has_index() ? device.index() : 0);
#endif
  TORCH_CHECK(false, "no name is known for the device ", device.str());
}

}  // namespace

EnvironmentFacts environment_facts(const ProgramVersion& program, c10::Device device) {
  EnvironmentFacts facts;
  facts.program = program;
  facts.compiler = compiler_text();
  facts.cpu_capability = at::get_cpu_capability();
  facts.threads = at::get_num_threads();
  facts.device = device_text(device);
  facts.hdf5 = data::hdf5_version();
  facts.icu = data::icu_version();
  return facts;
}

std::string environment_text(const EnvironmentFacts& facts) {
  const nlohmann::ordered_json object = {{"tempo", facts.program.tempo},
                                         {"git_revision", facts.program.git_revision},
                                         {"libtorch", facts.program.libtorch},
                                         {"compiler", facts.compiler},
                                         {"cuda", facts.program.cuda},
                                         {"cuda_architectures", facts.program.cuda_architectures},
                                         {"cpu_capability", facts.cpu_capability},
                                         {"threads", facts.threads},
                                         {"device", facts.device},
                                         {"hdf5", facts.hdf5},
                                         {"icu", facts.icu}};
  return object.dump(2) + "\n";
}

}  // namespace tempo::train
