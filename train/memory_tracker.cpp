#include "train/memory_tracker.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace tempo::train {
namespace {

constexpr std::size_t kHeaderBytes = 64;           // keeps the data on a cache line
constexpr std::size_t kSmallestCached = 64 << 10;  // malloc itself keeps smaller blocks
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kAlwaysCached = 256 << 20;  // cached blocks up to this are never worth returning

struct Header {
  std::size_t requested;
  std::size_t block_bytes;  // with this header
};
static_assert(sizeof(Header) <= kHeaderBytes);

/// Blocks come in eight sizes per power of two, so that tensors of nearly equal size share blocks and at most an eighth is lost.
std::size_t block_size(std::size_t bytes) {
  if (bytes < kSmallestCached) return (bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
  std::size_t power = kSmallestCached;
  while (power * 2 <= bytes) power *= 2;
  const std::size_t step = power / 8;
  return (bytes + step - 1) / step * step;
}

class Tracker final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &Tracker::give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Tracker::give_back; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

  MemoryUse use() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return use_;
  }

  void reset_peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    use_.peak_bytes = use_.live_bytes;
  }

 private:
  void* take(std::size_t bytes);
  void release(void* data);
  void* from_system(std::size_t size);
  void shrink_cache(std::size_t wanted);
  static void give_back(void* data);

  std::mutex mutex_;
  MemoryUse use_;
  std::int64_t highest_live_ = 0;                     // over the whole run: what the cache may grow to follows it
  std::map<std::size_t, std::vector<void*>> cached_;  // by block size
};

/// Never destroyed: tensors in static storage may outlive every other object.
Tracker& tracker() {
  static Tracker* const instance = new Tracker;
  return *instance;
}

void* Tracker::take(std::size_t bytes) {
  const std::size_t size = block_size(bytes + kHeaderBytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  void* block = nullptr;
  const auto kept = cached_.find(size);
  if (kept != cached_.end() && !kept->second.empty()) {
    block = kept->second.back();
    kept->second.pop_back();
  } else {
    shrink_cache(size);
    block = from_system(size);
  }
  *static_cast<Header*>(block) = {bytes, size};
  use_.live_bytes += static_cast<std::int64_t>(bytes);
  use_.peak_bytes = std::max(use_.peak_bytes, use_.live_bytes);
  highest_live_ = std::max(highest_live_, use_.live_bytes);
  return static_cast<char*>(block) + kHeaderBytes;
}

void* Tracker::from_system(std::size_t size) {
  const std::size_t alignment = size >= 2 * kHugePage ? kHugePage : kHeaderBytes;
  void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "the system gives no ", size, " more bytes; tensors hold ",
                   use_.live_bytes, " bytes now");
  // Fewer page faults and TLB misses; where the system has no huge pages the advice is ignored.
  if (alignment == kHugePage) ::madvise(block, size, MADV_HUGEPAGE);
  use_.reserved_bytes += static_cast<std::int64_t>(size);
  return block;
}

/// Returns cached blocks, largest first, while what is reserved would pass one and a half times what was ever live.
void Tracker::shrink_cache(std::size_t wanted) {
  const std::int64_t most = highest_live_ + highest_live_ / 2 + static_cast<std::int64_t>(kAlwaysCached);
  for (auto kept = cached_.rbegin(); kept != cached_.rend(); ++kept) {
    while (!kept->second.empty() && use_.reserved_bytes + static_cast<std::int64_t>(wanted) > most) {
      std::free(kept->second.back());
      kept->second.pop_back();
      use_.reserved_bytes -= static_cast<std::int64_t>(kept->first);
    }
  }
}

void Tracker::release(void* data) {
  void* block = static_cast<char*>(data) - kHeaderBytes;
  const Header header = *static_cast<Header*>(block);
  const std::lock_guard<std::mutex> lock(mutex_);
  use_.live_bytes -= static_cast<std::int64_t>(header.requested);
  if (header.block_bytes >= kSmallestCached) {
    cached_[header.block_bytes].push_back(block);
  } else {
    use_.reserved_bytes -= static_cast<std::int64_t>(header.block_bytes);
    std::free(block);
  }
}

void Tracker::give_back(void* data) {
  if (data != nullptr) tracker().release(data);
}

}  // namespace

void install_memory_tracker() {
  // Above the priority 0 of LibTorch's own allocator, which registers itself before main.
  c10::SetAllocator(c10::DeviceType::CPU, &tracker(), 255);
}

MemoryUse cpu_memory_use() { return tracker().use(); }

void reset_cpu_peak() { tracker().reset_peak(); }

MemoryUse memory_use(c10::Device device) {
  if (device.is_cpu()) return cpu_memory_use();
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const c10::CachingAllocator::Stat& requested = stats.requested_bytes[kAll];
  const c10::CachingAllocator::Stat& reserved = stats.reserved_bytes[kAll];
  return {requested.current, requested.peak, reserved.current, reserved.peak};
}

void reset_peak(c10::Device device) {
  if (device.is_cpu()) return reset_cpu_peak();
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

}  // namespace tempo::train
