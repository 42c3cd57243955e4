// The rows of keep decisions that dropout and attention share on the CPU (math/dropout.h says what they are).
//
// Not for: callers outside layers/ops. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/math/dropout.h"

namespace tempo::layers {

/// Elements that a row of bits has room for: its own, rounded up to what is drawn at a time.
inline constexpr std::int64_t room_for_bits(std::int64_t size) { return (size + 63) / 64 * 64; }

/// Fills bits[0 .. size) with the 16 random bits of channels (or keys) 0, 1, ... of one row, and what follows up to
/// room_for_bits(size) with anything.
void dropout_row_bits(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position, std::uint32_t example,
                      std::int64_t size, std::uint16_t* bits);

/// What draws `num_blocks` blocks of such a row, four words each, rounded up to a multiple of 64 elements.
using DrawBlocks = void (*)(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position,
                            std::uint32_t example, std::uint32_t num_blocks, std::uint32_t* words);

/// Those that this processor can run, the fastest first. All give the same words.
std::vector<DrawBlocks> draw_versions();

/// Writes whether bits[i] < threshold as a byte, 1 or 0.
void write_kept(const std::uint16_t* bits, std::uint32_t threshold, std::int64_t size, std::uint8_t* mask);

}  // namespace tempo::layers
