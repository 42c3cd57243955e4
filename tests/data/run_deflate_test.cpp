#include "data/run_deflate.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tempo::data {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// What zlib makes of a stream, all of which it has to use.
Bytes inflated(const Bytes& stream, std::size_t size) {
  Bytes bytes(size + 1);
  z_stream state{};
  EXPECT_EQ(::inflateInit(&state), Z_OK);
  state.next_in = const_cast<Bytef*>(stream.data());
  state.avail_in = static_cast<uInt>(stream.size());
  state.next_out = bytes.data();
  state.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(::inflate(&state, Z_FINISH), Z_STREAM_END) << (state.msg != nullptr ? state.msg : "");
  EXPECT_EQ(state.avail_in, 0u);
  bytes.resize(state.total_out);
  ::inflateEnd(&state);
  return bytes;
}

void expect_round_trip(const Bytes& bytes, std::size_t part_bytes) {
  EXPECT_TRUE(inflated(deflate_runs(bytes, part_bytes), bytes.size()) == bytes) << bytes.size() << ", " << part_bytes;
}

TEST(RunDeflateTest, ZlibReadsWhatIsWritten) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    Bytes bytes(random() % 5000);
    const unsigned kinds = 1 + random() % 256;
    const unsigned longest_run = 1 + random() % (round % 2 == 0 ? 4 : 700);
    for (std::size_t at = 0; at < bytes.size();) {
      const auto byte = static_cast<std::uint8_t>(random() % kinds);
      for (std::size_t end = std::min(bytes.size(), at + 1 + random() % longest_run); at < end; ++at) bytes[at] = byte;
    }
    expect_round_trip(bytes, 1 + random() % 3000);
  }
}

TEST(RunDeflateTest, RunsOfEveryLengthAreKept) {
  for (std::size_t length = 1; length < 1100; ++length) {
    Bytes bytes = {7};
    bytes.insert(bytes.end(), length, std::uint8_t{9});
    bytes.push_back(7);
    expect_round_trip(bytes, bytes.size());
  }
}

TEST(RunDeflateTest, ARunGoesOnFromOnePartToTheNext) {
  expect_round_trip(Bytes(10'000, 0), 37);
  EXPECT_LT(deflate_runs(Bytes(131'072, 0), 32'768).size(), 400u);
}

TEST(RunDeflateTest, NoBytesAndOneByteAreStreams) {
  expect_round_trip({}, 100);
  expect_round_trip({255}, 100);
}

TEST(RunDeflateTest, CodesNeverPassFifteenBits) {
  // Counts like Fibonacci's numbers make the longest codes: 22 symbols would get 21 bits.
  Bytes bytes;
  std::size_t one = 1;
  std::size_t two = 1;
  for (std::uint8_t symbol = 0; symbol < 22; ++symbol) {
    for (std::size_t count = 0; count < one; ++count) {
      bytes.push_back(symbol);
      bytes.push_back(255);  // no runs
    }
    two = std::exchange(one, one + two);
  }
  expect_round_trip(bytes, bytes.size());
}

TEST(RunDeflateTest, IsNearTheEntropy) {
  std::mt19937 random(2);
  std::geometric_distribution<int> draw(0.2);
  Bytes bytes(32'768);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(std::min(draw(random) * 11 % 251, 250));
  std::vector<double> counts(256);
  for (const std::uint8_t byte : bytes) ++counts[byte];
  double bits = 0;
  for (const double count : counts) bits -= count > 0 ? count * std::log2(count / 32'768) : 0;
  EXPECT_LT(static_cast<double>(deflate_runs(bytes, bytes.size()).size()), bits / 8 * 1.02 + 150);
}

}  // namespace
}  // namespace tempo::data
