// A stream of random numbers that is named, not continued: (seed, purpose, item, pass) always gives the same one, whatever
// thread asks and whatever was drawn elsewhere.
//
// Not for: dropout (layers/math/philox.h). Thread rule: a value.
#pragma once

#include <ATen/core/PhiloxRNGEngine.h>

#include <cstdint>

namespace tempo::data {

class Random {
 public:
  /// What a stream is for. The values take part in the key, so that equal items of two purposes do not repeat each other.
  enum class Purpose : std::uint64_t {
    kExamples = 0x6578616d706c6573,  // "examples"
    kShuffle = 0x73687566666c6573,   // "shuffles"
    kHoldOut = 0x686f6c642d6f7574,   // "hold-out"
  };

  /// Philox4x32-10 with key = seed ^ purpose and counter = (n, pass << 16, item): 2^46 numbers a stream.
  Random(std::uint64_t seed, Purpose purpose, std::uint64_t item, std::uint64_t pass = 0)
      : engine_(seed ^ static_cast<std::uint64_t>(purpose), item, pass << 48) {}

  std::uint32_t next() { return engine_(); }

  /// Uniform in [0, bound), bound >= 1, without bias (Lemire, 2019).
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = -bound % bound;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next()} * bound;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

  /// Uniform in [first, last], both included.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + below(static_cast<std::uint32_t>(last - first + 1));
  }

  /// True with this probability, to 2^-32.
  bool chance(double probability) { return next() < probability * 4294967296.0; }

 private:
  at::philox_engine engine_;
};

}  // namespace tempo::data
