// Which elements a dropout site drops: a pure function of (seed, step, site, example, head, position, channel).
//
// One Philox call decides eight neighbouring channels (or attention keys), 16 bits each. The counter is
//   word 0   block (channel / 8 or key / 8), 20 bits | site << 20
//   word 1   position in the sequence (attention: query), 20 bits | head << 20
//   word 2   number of the example in the data set, low 32 bits
//   word 3   step, low 32 bits
// and the key is the run's seed. Lane l of a block uses the low half of word l/2 for even l, the high half for odd l.
// An element is kept where its 16 bits are below `threshold`; the scale is 65536 / threshold, the rounded keep probability's
// inverse, so that the expectation is exact. Known answers: docs/operators.md and tests/layers/math_test.cpp.
// Not for: loops or tensors. Thread rule: pure functions.
#pragma once

#include "layers/math/philox.h"

namespace tempo::layers::math {

inline constexpr int kDropoutBlock = 8;  // elements one Philox call decides
inline constexpr std::uint32_t kMaxDropoutBlocks = 1u << 20;
inline constexpr std::uint32_t kMaxDropoutPositions = 1u << 20;
inline constexpr std::uint32_t kMaxDropoutHeads = 1u << 12;
inline constexpr std::uint32_t kMaxDropoutSites = 1u << 12;

/// What all elements of one dropout site share in one step.
struct DropoutKey {
  std::uint64_t seed;
  std::uint32_t step;
  std::uint32_t site;
  std::uint32_t threshold;  ///< in [1, 65536]

  TEMPO_HOST_DEVICE float scale() const { return 65536.0f / static_cast<float>(threshold); }
};

/// The smallest threshold is 1: a probability that rounds to 1 would have no finite scale.
TEMPO_HOST_DEVICE std::uint32_t dropout_threshold(double drop_probability) {
  const double kept = (1.0 - drop_probability) * 65536.0 + 0.5;
  return kept < 1.0 ? 1u : static_cast<std::uint32_t>(kept);
}

TEMPO_HOST_DEVICE PhiloxWords dropout_words(const DropoutKey& key, std::uint32_t block, std::uint32_t head,
                                            std::uint32_t position, std::uint32_t example) {
  return philox(key.seed, block | key.site << 20, position | head << 20, example, key.step);
}

TEMPO_HOST_DEVICE bool dropout_keeps(const DropoutKey& key, const PhiloxWords& words, int lane) {
  return ((words.word[lane / 2] >> (16 * (lane % 2))) & 0xFFFFu) < key.threshold;
}

}  // namespace tempo::layers::math
