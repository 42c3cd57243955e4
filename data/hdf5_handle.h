// What reading and writing shards share: identifiers that close themselves, and HDF5's errors as text.
//
// Not for: shards (shard.h, shard_writer.h). Thread rule: HDF5 takes its own global lock.
#pragma once

#include <hdf5.h>

#include <array>
#include <string>

namespace tempo::data {

/// The datasets of a shard, in the order in which they are written.
enum ColumnIndex {
  kInputIds,
  kInputMask,
  kSegmentIds,
  kMaskedLmPositions,
  kMaskedLmIds,
  kNextSentenceLabels,
  kNumColumns
};
inline constexpr std::array<const char*, kNumColumns> kColumnNames = {
    "input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids", "next_sentence_labels"};

/// Closes an HDF5 identifier.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;
  ~Handle();

  bool valid() const { return id_ >= 0; }
  hid_t get() const { return id_; }

  /// Closes now, to learn whether that worked: closing a file is what writes its last bytes.
  bool close();

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// HDF5 prints every failing call's stack to stderr; ours go into one message instead. The setting is per thread.
class QuietErrors {
 public:
  QuietErrors();
  ~QuietErrors();
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

/// What HDF5 says about its last failing call. The innermost entry of its stack is the one that names the cause; one line.
std::string hdf5_reason();

}  // namespace tempo::data
