// A deflate encoder (RFC 1951) for what shards hold: it looks for runs of one byte and for nothing else.
//
// Ids whose bytes were shuffled repeat no strings, and all else in a shard is runs, so that a search for strings finds next to
// nothing: on English ids the result is 3 % smaller than that of zlib's level 4. zlib has the same idea (Z_RLE) but takes three
// times as long, which was half of all the time of `tempo prepare`.
// Not for: other data. Thread rule: a function without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tempo::data {

/// A zlib stream (RFC 1950) of `bytes`. Every `part_bytes` bytes (at least 1) get Huffman codes of their own: the bytes of one
/// kind, or some 32 KiB. Equal bytes give equal streams, on any machine.
std::vector<std::uint8_t> deflate_runs(const std::vector<std::uint8_t>& bytes, std::size_t part_bytes);

}  // namespace tempo::data
