// How the heads of a ragged batch lie in memory, and how the CPU goes through them.
//
// Not for: arithmetic (attention_rows.h), callers outside layers/ops. Thread rule: values; heads of a sequence run in parallel.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "layers/ops/attention_rows.h"
#include "layers/ops/bit_mask.h"
#include "layers/ops/cpu_loops.h"
#include "layers/ops/dropout.h"
#include "layers/ops/dropout_bits.h"
#include "layers/ops/ops.h"

namespace tempo::layers {

// Query rows a thread carries from scores to context at a time, so that they stay in its cache: 128 x 512 floats are 256 KiB.
inline constexpr std::int64_t kQueryRows = 128;

/// What all heads of a batch share, as the operators are given it.
struct HeadLayout {
  c10::IntArrayRef host_starts;
  std::int64_t num_heads;
  bool is_causal;
  AttentionKeep keep;
  MaskKeep mask;

  bool keeps_squares() const { return keep != AttentionKeep::kLogSumExp; }
  std::int64_t slots(std::size_t b) const { return host_starts[b + 1] - host_starts[b]; }
  std::int64_t max_slots() const {
    std::int64_t largest = 0;
    for (std::size_t b = 0; b + 1 < host_starts.size(); ++b) largest = std::max(largest, slots(b));
    return largest;
  }
  /// Bytes of one row of the mask of a sequence of so many slots.
  std::int64_t mask_bytes(std::int64_t slots) const {
    return mask == MaskKeep::kBytes ? slots : mask == MaskKeep::kBits ? tempo::layers::mask_bytes(slots) : 0;
  }
  /// Entries before each sequence, and in all, of a tensor that has row_entries(slots) for each query of each head.
  template <typename Entries>
  std::vector<std::int64_t> offsets(Entries&& row_entries) const {
    std::vector<std::int64_t> result{0};
    for (std::size_t b = 0; b + 1 < host_starts.size(); ++b)
      result.push_back(result.back() + num_heads * slots(b) * row_entries(slots(b)));
    return result;
  }
  /// Elements of a buffer for a chunk of one head's S x S part.
  std::int64_t chunk_size() const { return std::min(kQueryRows, max_slots()) * max_slots(); }
  /// Threads that heads run on at the same time.
  std::int64_t num_threads() const { return std::min<std::int64_t>(num_heads, at::get_num_threads()); }
};

/// One head of one sequence: views of its rows and columns in the big tensors.
template <typename T>
struct Head {
  std::int64_t number;
  std::int64_t start;   // first slot of the sequence in T
  std::int64_t length;  // real tokens
  std::int64_t slots;   // of the sequence
  std::int64_t hidden;  // row stride of q, k, v
  std::int64_t column;  // first column of the head
  std::int64_t head_size;
  std::int64_t square;     // offset of its S x S part
  std::int64_t mask;       // offset of its mask
  std::int64_t statistic;  // offset of its log-sum-exps
  std::uint32_t example;
  bool is_causal;
  at::TensorOptions options;

  /// Rows [first, first + count) of this head in a [T, H] tensor.
  at::Tensor rows(T* data, std::int64_t first, std::int64_t count) const {
    return at::from_blob(data + (start + first) * hidden + column, {count, head_size}, {hidden, 1}, options);
  }
  at::Tensor rows(const T* data, std::int64_t first, std::int64_t count) const {
    return rows(const_cast<T*>(data), first, count);  // read only: ATen has no view of const memory
  }
  /// `count` rows of `keys` entries in an S x S tensor or a buffer like it.
  at::Tensor square_rows(T* data, std::int64_t count, std::int64_t keys) const {
    return at::from_blob(data, {count, keys}, {slots, 1}, options);
  }
  /// Keys that query `row` attends to.
  std::int64_t keys_of(std::int64_t row) const { return is_causal ? std::min(row + 1, length) : length; }
};

/// Calls run(Head) for every head of every sequence, heads of one sequence in parallel.
template <typename T, typename Run>
void for_each_head(const at::Tensor& q, const at::Tensor& lengths, const at::Tensor& ids, const HeadLayout& layout,
                   Run&& run) {
  const std::int64_t hidden = q.size(1);
  const std::int64_t head_size = hidden / layout.num_heads;
  const auto squares = layout.offsets([](std::int64_t slots) { return slots; });
  const auto masks = layout.offsets([&](std::int64_t slots) { return layout.mask_bytes(slots); });
  const std::int64_t* length = lengths.const_data_ptr<std::int64_t>();
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  for (std::size_t b = 0; b + 1 < layout.host_starts.size(); ++b) {
    const std::int64_t start = layout.host_starts[b];
    const std::int64_t slots = layout.slots(b);
    at::parallel_for(0, layout.num_heads, 1, [&](std::int64_t begin, std::int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      for (std::int64_t h = begin; h < end; ++h) {
        run(Head<T>{h, start, length[b], slots, hidden, h * head_size, head_size, squares[b] + h * slots * slots,
                    masks[b] + h * slots * layout.mask_bytes(slots), layout.num_heads * start + h * slots,
                    static_cast<std::uint32_t>(id[b]), layout.is_causal, q.options()});
      }
    });
  }
}

/// The mask of a query's keys as bytes, wherever it comes from: drawn, kept as bytes or kept as bits.
class MaskRow {
 public:
  MaskRow(const HeadLayout& layout, const math::DropoutKey& key, std::int64_t slots)
      : layout_(layout),
        key_(key),
        row_bytes_(layout.mask_bytes(slots)),
        bits_(room_for_bits(slots)),
        bytes_(slots + 7) {}

  /// Draws it as bits to compare with a threshold.
  template <typename T>
  RowDraw draw(const Head<T>& head, std::int64_t row, std::int64_t keys) {
    dropout_row_bits(key_, static_cast<std::uint32_t>(head.number), static_cast<std::uint32_t>(row), head.example, keys,
                     bits_.data());
    return {bits_.data(), key_.threshold, key_.scale()};
  }

  /// Draws it, and writes it to `kept` (null: nowhere) as the layout says.
  template <typename T>
  const std::uint8_t* draw(const Head<T>& head, std::int64_t row, std::int64_t keys, std::uint8_t* kept) {
    draw(head, row, keys);
    std::uint8_t* bytes = bytes_.data();
    if (kept != nullptr && layout_.mask == MaskKeep::kBytes) bytes = kept + head.mask + row * row_bytes_;
    write_kept(bits_.data(), key_.threshold, keys, bytes);
    if (kept != nullptr && layout_.mask == MaskKeep::kBits) pack_mask(bytes, keys, kept + head.mask + row * row_bytes_);
    return bytes;
  }

  /// Reads it from `kept`, or draws it again where nothing was kept.
  template <typename T>
  const std::uint8_t* read(const Head<T>& head, std::int64_t row, std::int64_t keys, const std::uint8_t* kept) {
    if (layout_.mask == MaskKeep::kNothing) return draw(head, row, keys, nullptr);
    const std::uint8_t* of_row = kept + head.mask + row * row_bytes_;
    if (layout_.mask == MaskKeep::kBytes) return of_row;
    unpack_mask(of_row, keys, bytes_.data());
    return bytes_.data();
  }

 private:
  const HeadLayout& layout_;
  const math::DropoutKey& key_;
  std::int64_t row_bytes_;
  std::vector<std::uint16_t> bits_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace tempo::layers
