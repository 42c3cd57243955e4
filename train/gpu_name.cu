#include "train/gpu_name.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace tempo::train {

std::string gpu_name(int index) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    throw std::runtime_error("CUDA device " + std::to_string(index) + ": " + cudaGetErrorString(error));
  }
  return properties.name;
}

}  // namespace tempo::train
