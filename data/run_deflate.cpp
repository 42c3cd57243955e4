#include "data/run_deflate.h"

#include <c10/util/Exception.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tempo::data {
namespace {

// RFC 1951, 3.2.5 to 3.2.7.
constexpr std::size_t kEndOfBlock = 256;
constexpr std::size_t kFirstLength = 257;
constexpr std::size_t kNumLiterals = 286;    // literals, end of block, lengths
constexpr std::size_t kNumLengthCodes = 19;  // the alphabet in which code lengths are written
constexpr std::size_t kShortestRun = 3;
constexpr std::size_t kLongestRun = 258;
constexpr int kLongestCode = 15;
constexpr int kLongestLengthCode = 7;
constexpr std::uint32_t kDynamicBlock = 2;
constexpr std::array<std::uint8_t, kNumLengthCodes> kLengthCodeOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                                        11, 4,  12, 3, 13, 2, 14, 1, 15};

/// How a run's length is written: its symbol, and bits behind it.
struct RunCode {
  std::uint16_t symbol = 0;
  std::uint8_t extra_bits = 0;
  std::uint8_t extra = 0;
};

/// By length, from kShortestRun to kLongestRun.
std::array<RunCode, kLongestRun + 1> make_run_codes() {
  std::array<RunCode, kLongestRun + 1> codes{};
  std::size_t length = kShortestRun;
  for (std::size_t symbol = 0; length < kLongestRun; ++symbol) {
    const std::size_t extra_bits = symbol < 8 ? 0 : symbol / 4 - 1;
    for (std::size_t extra = 0; extra < (std::size_t{1} << extra_bits) && length < kLongestRun; ++extra) {
      codes[length++] = {static_cast<std::uint16_t>(kFirstLength + symbol), static_cast<std::uint8_t>(extra_bits),
                         static_cast<std::uint8_t>(extra)};
    }
  }
  codes[kLongestRun] = {static_cast<std::uint16_t>(kNumLiterals - 1), 0, 0};
  return codes;
}

const std::array<RunCode, kLongestRun + 1> kRunCodes = make_run_codes();

/// Huffman's code (1952) of some symbols: lengths by their counts, canonical codes with the first bit lowest.
template <std::size_t kSize>
struct HuffmanCode {
  std::array<std::uint8_t, kSize> lengths{};
  std::array<std::uint16_t, kSize> codes{};

  HuffmanCode(std::array<std::uint32_t, kSize> counts, int longest) {
    // Counts are flattened until no code is too long; that costs next to nothing, as long codes are rare ones.
    while (!assign_lengths(counts, longest)) {
      for (std::uint32_t& count : counts) count = (count + 1) / 2;
    }
    assign_codes();
  }

 private:
  /// False where a code would be longer than `longest`.
  bool assign_lengths(const std::array<std::uint32_t, kSize>& counts, int longest) {
    lengths.fill(0);
    std::vector<std::pair<std::uint32_t, std::size_t>> leaves;  // count, symbol: ties go by the symbol
    for (std::size_t symbol = 0; symbol < kSize; ++symbol) {
      if (counts[symbol] > 0) leaves.emplace_back(counts[symbol], symbol);
    }
    if (leaves.size() == 1) lengths[leaves.front().second] = 1;
    if (leaves.size() < 2) return true;
    std::sort(leaves.begin(), leaves.end());
    // Two queues: leaves by their counts, and inner nodes, which are born in the order of theirs.
    const std::size_t num_leaves = leaves.size();
    std::vector<std::uint64_t> weights(2 * num_leaves - 1);
    std::vector<std::size_t> parents(2 * num_leaves - 1);
    for (std::size_t leaf = 0; leaf < num_leaves; ++leaf) weights[leaf] = leaves[leaf].first;
    std::size_t next_leaf = 0;
    std::size_t next_inner = num_leaves;
    for (std::size_t node = num_leaves; node < weights.size(); ++node) {
      for (int child = 0; child < 2; ++child) {
        const bool take_leaf =
            next_leaf < num_leaves && (next_inner == node || weights[next_leaf] <= weights[next_inner]);
        const std::size_t taken = take_leaf ? next_leaf++ : next_inner++;
        weights[node] += weights[taken];
        parents[taken] = node;
      }
    }
    std::vector<int> depths(weights.size());
    for (std::size_t node = weights.size() - 1; node-- > 0;) depths[node] = depths[parents[node]] + 1;
    for (std::size_t leaf = 0; leaf < num_leaves; ++leaf) {
      if (depths[leaf] > longest) return false;
      lengths[leaves[leaf].second] = static_cast<std::uint8_t>(depths[leaf]);
    }
    return true;
  }

  /// RFC 1951, 3.2.2.
  void assign_codes() {
    std::uint32_t code = 0;
    for (int length = 1; length <= kLongestCode; ++length) {
      for (std::size_t symbol = 0; symbol < kSize; ++symbol) {
        if (lengths[symbol] != length) continue;
        std::uint32_t reversed = 0;
        for (int bit = 0; bit < length; ++bit) reversed |= (code >> bit & 1) << (length - 1 - bit);
        codes[symbol] = static_cast<std::uint16_t>(reversed);
        ++code;
      }
      code <<= 1;
    }
  }
};

class BitWriter {
 public:
  explicit BitWriter(std::vector<std::uint8_t>& bytes) : bytes_(bytes) {}

  /// At most 32 bits.
  void put(std::uint32_t bits, int count) {
    pending_ |= std::uint64_t{bits} << num_pending_;
    num_pending_ += count;
    if (num_pending_ < 32) return;
    for (int byte = 0; byte < 4; ++byte) bytes_.push_back(static_cast<std::uint8_t>(pending_ >> (8 * byte)));
    pending_ >>= 32;
    num_pending_ -= 32;
  }

  /// Fills the last byte with zeros.
  void finish() {
    for (; num_pending_ > 0; num_pending_ -= 8, pending_ >>= 8) bytes_.push_back(static_cast<std::uint8_t>(pending_));
  }

 private:
  std::vector<std::uint8_t>& bytes_;
  std::uint64_t pending_ = 0;
  int num_pending_ = 0;
};

/// A code length, or a repetition of one (16) or of zero (17, 18), with the bits behind it.
struct LengthItem {
  std::size_t symbol;
  std::uint32_t extra;
  int extra_bits;
};

std::vector<LengthItem> length_items(const std::vector<std::uint8_t>& lengths) {
  std::vector<LengthItem> items;
  for (std::size_t at = 0; at < lengths.size();) {
    std::size_t end = at + 1;
    while (end < lengths.size() && lengths[end] == lengths[at]) ++end;
    std::size_t count = end - at;
    if (lengths[at] == 0) {
      for (; count >= 11; count -= std::min<std::size_t>(count, 138)) {
        items.push_back({18, static_cast<std::uint32_t>(std::min<std::size_t>(count, 138) - 11), 7});
      }
      if (count >= 3) items.push_back({17, static_cast<std::uint32_t>(std::exchange(count, 0) - 3), 3});
    } else {
      items.push_back({lengths[at], 0, 0});
      --count;
      for (; count >= 3; count -= std::min<std::size_t>(count, 6)) {
        items.push_back({16, static_cast<std::uint32_t>(std::min<std::size_t>(count, 6) - 3), 2});
      }
    }
    for (; count > 0; --count) items.push_back({lengths[at], 0, 0});
    at = end;
  }
  return items;
}

/// The codes of a block, before its data (RFC 1951, 3.2.7). There is one distance, 1, whose code is one bit.
void put_header(const HuffmanCode<kNumLiterals>& literals, bool is_last, BitWriter& writer) {
  std::size_t num_literals = kNumLiterals;
  while (num_literals > kFirstLength && literals.lengths[num_literals - 1] == 0) --num_literals;
  std::vector<std::uint8_t> lengths(literals.lengths.begin(),
                                    literals.lengths.begin() + static_cast<std::ptrdiff_t>(num_literals));
  lengths.push_back(1);
  const std::vector<LengthItem> items = length_items(lengths);
  std::array<std::uint32_t, kNumLengthCodes> counts{};
  for (const LengthItem& item : items) ++counts[item.symbol];
  const HuffmanCode<kNumLengthCodes> code(counts, kLongestLengthCode);
  std::size_t num_codes = kNumLengthCodes;
  while (num_codes > 4 && code.lengths[kLengthCodeOrder[num_codes - 1]] == 0) --num_codes;

  writer.put(is_last ? 1 : 0, 1);
  writer.put(kDynamicBlock, 2);
  writer.put(static_cast<std::uint32_t>(num_literals - kFirstLength), 5);
  writer.put(0, 5);
  writer.put(static_cast<std::uint32_t>(num_codes - 4), 4);
  for (std::size_t index = 0; index < num_codes; ++index) writer.put(code.lengths[kLengthCodeOrder[index]], 3);
  for (const LengthItem& item : items) {
    writer.put(code.codes[item.symbol], code.lengths[item.symbol]);
    if (item.extra_bits > 0) writer.put(item.extra, item.extra_bits);
  }
}

/// Literals and runs of bytes [begin, end): below kEndOfBlock a literal, above it kEndOfBlock + the length of a run, which
/// repeats the byte before it.
void find_runs(const std::vector<std::uint8_t>& bytes, std::size_t begin, std::size_t end,
               std::vector<std::uint16_t>& tokens) {
  tokens.clear();
  for (std::size_t at = begin; at < end;) {
    const std::uint8_t byte = bytes[at];
    if (at > 0 && bytes[at - 1] == byte) {
      const std::size_t limit = std::min(end, at + kLongestRun);
      std::size_t stop = at + 1;
      while (stop < limit && bytes[stop] == byte) ++stop;
      if (stop - at >= kShortestRun) {
        tokens.push_back(static_cast<std::uint16_t>(kEndOfBlock + (stop - at)));
        at = stop;
        continue;
      }
    }
    tokens.push_back(byte);
    ++at;
  }
}

void put_block(const std::vector<std::uint16_t>& tokens, bool is_last, BitWriter& writer) {
  std::array<std::uint32_t, kNumLiterals> counts{};
  counts[kEndOfBlock] = 1;
  for (const std::uint16_t token : tokens) {
    ++counts[token < kEndOfBlock ? token : kRunCodes[token - kEndOfBlock].symbol];
  }
  const HuffmanCode<kNumLiterals> code(counts, kLongestCode);
  put_header(code, is_last, writer);
  for (const std::uint16_t token : tokens) {
    if (token < kEndOfBlock) {
      writer.put(code.codes[token], code.lengths[token]);
      continue;
    }
    const RunCode& run = kRunCodes[token - kEndOfBlock];
    writer.put(code.codes[run.symbol], code.lengths[run.symbol]);
    writer.put(run.extra, run.extra_bits + 1);  // and the distance's code, a zero
  }
  writer.put(code.codes[kEndOfBlock], code.lengths[kEndOfBlock]);
}

}  // namespace

std::vector<std::uint8_t> deflate_runs(const std::vector<std::uint8_t>& bytes, std::size_t part_bytes) {
  TORCH_CHECK(part_bytes > 0, "parts of no bytes");
  std::vector<std::uint8_t> stream;
  stream.reserve(bytes.size() / 2 + 64);
  for (const std::uint8_t byte : {0x78, 0x01}) stream.push_back(byte);  // deflate, window of 32 KiB; "fastest"
  BitWriter writer(stream);
  std::vector<std::uint16_t> tokens;
  tokens.reserve(std::min(part_bytes, bytes.size()));
  std::size_t begin = 0;
  do {
    const std::size_t end = std::min(begin + part_bytes, bytes.size());
    find_runs(bytes, begin, end, tokens);
    put_block(tokens, end == bytes.size(), writer);
    begin = end;
  } while (begin < bytes.size());
  writer.finish();
  const auto check = static_cast<std::uint32_t>(::adler32(1, bytes.data(), static_cast<uInt>(bytes.size())));
  for (int byte = 3; byte >= 0; --byte) stream.push_back(static_cast<std::uint8_t>(check >> (8 * byte)));
  return stream;
}

}  // namespace tempo::data
