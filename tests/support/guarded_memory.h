// A CPU allocator for tests: every tensor lies between guard bytes and begins as not-a-number.
//
// Installed for the whole program. A write outside a tensor is counted when the tensor is released; an element that an
// operator forgets to write shows as NaN (integers as -1).
// Not for: speed. Thread rule: any thread.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tempo::testing {

class GuardedMemory final : public c10::Allocator {
 public:
  /// Makes it LibTorch's allocator for CPU tensors, for good.
  static GuardedMemory& install() {
    static GuardedMemory* const memory = new GuardedMemory;
    c10::SetAllocator(c10::DeviceType::CPU, memory, 255);
    return *memory;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto* block = static_cast<unsigned char*>(std::malloc(bytes + 2 * kGuard));
    if (block == nullptr) throw std::bad_alloc();
    std::memcpy(block, &bytes, sizeof bytes);
    std::memset(block + sizeof bytes, kPattern, kGuard - sizeof bytes);
    std::memset(block + kGuard, 0xFF, bytes);
    std::memset(block + kGuard + bytes, kPattern, kGuard);
    void* data = block + kGuard;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

  /// Released tensors so far whose guards were overwritten.
  static int num_damaged() { return damaged_; }

 private:
  static constexpr std::size_t kGuard = 256;  // at least the alignment that ATen's loops like, and some elements
  static constexpr int kPattern = 0xA5;

  static bool is_intact(const unsigned char* guard, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (guard[i] != kPattern) return false;
    }
    return true;
  }

  static void release(void* data) {
    auto* block = static_cast<unsigned char*>(data) - kGuard;
    std::size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    // An overwritten size is damage too, and leads nowhere.
    const bool before = is_intact(block + sizeof bytes, kGuard - sizeof bytes);
    if (!before || !is_intact(block + kGuard + bytes, kGuard)) ++damaged_;
    std::free(block);
  }

  static inline std::atomic<int> damaged_{0};
};

}  // namespace tempo::testing
