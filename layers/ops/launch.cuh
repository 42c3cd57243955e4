// The one way a kernel is started.
//
// Not for: kernel bodies (x_kernels.cuh). Thread rule: as CUDA streams.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "layers/ops/block.cuh"

namespace tempo::layers::cuda {

/// Far more than any GPU runs at once, far fewer than CUDA allows; kernels loop over what is left.
inline constexpr std::int64_t kMaxBlocks = 1 << 20;

/// Blocks that give each of `size` elements a thread.
inline std::int64_t blocks_for(std::int64_t size) { return (size + kThreads - 1) / kThreads; }

/// Queues `kernel` on `stream` in blocks of kThreads, as many as asked for or kMaxBlocks; none for no blocks. Throws
/// std::runtime_error with `name` when CUDA refuses.
template <typename... Parameters, typename... Arguments>
void launch(void* stream, const char* name, void (*kernel)(Parameters...), std::int64_t num_blocks,
            Arguments... arguments) {
  if (num_blocks <= 0) return;
  const auto blocks = static_cast<unsigned>(std::min(num_blocks, kMaxBlocks));
#if defined(__CUDACC__)
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string(name) + ": " + cudaGetErrorString(error));
#else  // a test, with tests/support/cuda_emulation.h included ahead
  static_cast<void>(stream);
  testing::emulate(name, blocks, kThreads, [=] { kernel(arguments...); });
#endif
}

}  // namespace tempo::layers::cuda
