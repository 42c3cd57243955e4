// Philox4x32-10 (Salmon et al., SC'11): 128 random bits from a 64-bit key and a 128-bit counter, without state.
//
// Not for: what the counter means (dropout.h, docs/operators.md). Thread rule: a pure function.
#pragma once

#include "layers/math/scalar.h"

namespace tempo::layers::math {

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85u;

struct PhiloxWords {
  std::uint32_t word[4];
};

TEMPO_HOST_DEVICE PhiloxWords philox(std::uint64_t key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2,
                                     std::uint32_t c3) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0;
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c2;
    const std::uint32_t next0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    const std::uint32_t next2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(product1);
    c3 = static_cast<std::uint32_t>(product0);
    c0 = next0;
    c2 = next2;
    k0 += kPhiloxKeyStep0;
    k1 += kPhiloxKeyStep1;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace tempo::layers::math
