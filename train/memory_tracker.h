// Counts the bytes of CPU tensors, and keeps freed blocks for the next step.
//
// Two jobs, one allocator, installed as LibTorch's for kCPU. It counts requested bytes (live and peak), so that memory is an exact
// number and not what malloc makes of it; and it caches freed blocks, since returning them to the system costs a training step
// more time in page faults than its dropout, softmax and LayerNorm together.
// Plain host memory (shards, prefetched batches) is not counted. On CUDA LibTorch's own allocator does both jobs; here it is only
// asked.
// Not for: other devices. Thread rule: all functions may be called from any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace tempo::train {

struct MemoryUse {
  std::int64_t live_bytes = 0;           ///< requested by tensors that exist now
  std::int64_t peak_bytes = 0;           ///< largest live_bytes since the peak was last reset
  std::int64_t reserved_bytes = 0;       ///< taken from the system: live blocks, rounded up, and cached ones
  std::int64_t peak_reserved_bytes = 0;  ///< CUDA only: largest reserved_bytes since the peak was last reset
};

/// Makes the tracker LibTorch's allocator for CPU tensors. Call it once, before the first tensor.
void install_memory_tracker();

MemoryUse cpu_memory_use();

/// Sets the peak to what is live now.
void reset_cpu_peak();

/// What tensors on `device` use; a CUDA device must have held one.
MemoryUse memory_use(c10::Device device);

/// Sets the peaks to what is live and reserved now.
void reset_peak(c10::Device device);

}  // namespace tempo::train
