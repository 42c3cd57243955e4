// An allocator for meta tensors that counts the bytes they ask for: what a step would need, without computing it.
//
// Not for: real memory (train/memory_tracker.h). Thread rule: one thread.
#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstdint>

namespace tempo::testing {

class CountedMetaMemory final : public c10::Allocator {
 public:
  /// Makes it LibTorch's allocator for meta tensors, for good.
  static CountedMetaMemory& install() {
    static CountedMetaMemory memory;
    c10::SetAllocator(c10::DeviceType::Meta, &memory, 255);
    return memory;
  }

  std::int64_t live_bytes() const { return live_; }
  std::int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = live_; }

  c10::DataPtr allocate(std::size_t bytes) override {
    live_ += static_cast<std::int64_t>(bytes);
    peak_ = std::max(peak_, live_);
    return {nullptr, new std::int64_t(static_cast<std::int64_t>(bytes)), &release, c10::Device(c10::DeviceType::Meta)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  static void release(void* bytes) {
    auto* count = static_cast<std::int64_t*>(bytes);
    live_ -= *count;
    delete count;
  }

  static inline std::int64_t live_ = 0;
  static inline std::int64_t peak_ = 0;
};

}  // namespace tempo::testing
