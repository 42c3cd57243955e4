// The rows of keep decisions that dropout and attention share on the CPU (math/dropout.h says what they are).
//
// Not for: callers outside layers/ops. Thread rule: pure functions.
#pragma once

#include "layers/math/dropout.h"
#include "layers/ops/ops.h"

namespace tempo::layers {

/// The key of a site; checks probability, site and step.
math::DropoutKey dropout_key(const DropoutSite& site);

/// Fills bits[0 .. 8 ceil(size / 8)) with the 16 random bits of channels (or keys) 0, 1, ... of one row.
void dropout_row_bits(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position, std::uint32_t example,
                      std::int64_t size, std::uint16_t* bits);

}  // namespace tempo::layers
