// Masks of one bit per element on the CPU: element i is bit i % 8 of byte i / 8; what is left of the last byte is 0.
//
// Loops compute with one byte per element, 0 or 1, a strip at a time; these turn a strip's bytes into bits and back.
// Not for: kernels, which do it per thread. Thread rule: pure functions; threads must be given whole bytes of a mask.
#pragma once

#include <cstdint>
#include <cstring>

#include "layers/ops/cpu_loops.h"

namespace tempo::layers {

/// Elements of a strip: its bytes stay in the first cache beside the data. A multiple of 8.
inline constexpr std::int64_t kMaskStrip = 1024;

inline constexpr std::int64_t mask_bytes(std::int64_t num_elements) { return (num_elements + 7) / 8; }

/// `flags` has `size` bytes, each 0 or 1, and room for 7 more, which are set to 0.
TEMPO_INLINE void pack_mask(std::uint8_t* flags, std::int64_t size, std::uint8_t* bits) {
  const std::int64_t bytes = mask_bytes(size);
  for (std::int64_t i = size; i < bytes * 8; ++i) flags[i] = 0;
  for (std::int64_t b = 0; b < bytes; ++b) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + b * 8, sizeof eight);  // flag k at bit 8k: hosts with the low byte first
    // The factor has bits 7, 14, .. 56, so that flag k also lands at bit 56 + k, and no two at one place.
    bits[b] = static_cast<std::uint8_t>((eight * 0x0102040810204080u) >> 56);
  }
}

/// Writes flags that are 0 or not 0; `flags` has room for 7 more.
TEMPO_INLINE void unpack_mask(const std::uint8_t* bits, std::int64_t size, std::uint8_t* flags) {
  for (std::int64_t b = 0; b < mask_bytes(size); ++b) {
    const std::uint64_t eight = (bits[b] * 0x0101010101010101u) & 0x8040201008040201u;
    std::memcpy(flags + b * 8, &eight, sizeof eight);
  }
}

}  // namespace tempo::layers
