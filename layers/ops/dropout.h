// The rows of keep decisions that dropout and attention share on the CPU (math/dropout.h says what they are).
//
// Not for: callers outside layers/ops. Thread rule: pure functions.
#pragma once

#include "layers/math/dropout.h"
#include "layers/ops/dispatch.h"
#include "layers/ops/ops.h"

namespace tempo::layers {

/// The key of a site; checks probability, site and step.
math::DropoutKey dropout_key(const DropoutSite& site);

/// Stores a site in a node of the graph, and reads it there.
void save_site(const DropoutSite& site, AutogradContext& context);
DropoutSite saved_site(AutogradContext& context);

/// Fills bits[0 .. 8 ceil(size / 8)) with the 16 random bits of channels (or keys) 0, 1, ... of one row.
void dropout_row_bits(const math::DropoutKey& key, std::uint32_t head, std::uint32_t position, std::uint32_t example,
                      std::int64_t size, std::uint16_t* bits);

/// x [T, H], contiguous, becomes dropout(x) in place, and nothing is kept: the decisions can be drawn again. So this is the
/// backward pass as well. It leaves x as it is where the probability is 0. Not differentiable.
void drop_rows(const at::Tensor& x, const Sequences& sequences, const DropoutSite& site);

/// Writes whether bits[i] < threshold as a byte, 1 or 0.
void write_kept(const std::uint16_t* bits, std::uint32_t threshold, std::int64_t size, std::uint8_t* mask);

}  // namespace tempo::layers
