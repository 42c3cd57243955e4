#include "train/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "layers/ops/ops.h"

namespace tempo::train {
namespace {

c10::Device find_device(const std::string& name) {
  if (name == "cpu") return c10::DeviceType::CPU;
  const bool has_kernels = layers::has_cuda_kernels();
  if (has_kernels && at::hasCUDA()) return c10::Device(c10::DeviceType::CUDA, 0);
  TORCH_CHECK_VALUE(
      name != "cuda" || has_kernels,
      "train.device: cuda: this program was built without CUDA kernels (TEMPO_CUDA=ON builds them); use cpu or auto");
  TORCH_CHECK_VALUE(name != "cuda",
                    "train.device: cuda: no GPU was found that CUDA can use; use cpu or auto, or look at nvidia-smi");
  return c10::DeviceType::CPU;
}

}  // namespace

c10::Device open_device(const RunConfig& config) {
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  const c10::Device device = find_device(config.train.device);
  TORCH_CHECK_VALUE(device.is_cpu() || config.layers.attention == layers::AttentionOption::kBaseline, "layers.preset ",
                    config.layers_preset,
                    ": its attention is not there on a GPU yet; choose "
                    "layers.attention=baseline, or train.device=cpu");
  return device;
}

void wait_for(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace tempo::train
