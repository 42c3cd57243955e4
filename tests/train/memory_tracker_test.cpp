#include "train/memory_tracker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tempo::train {
namespace {

/// Installed once, before the first tensor of these tests is made.
class MemoryTracker : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_memory_tracker(); }
};

TEST_F(MemoryTracker, CountsRequestedBytesExactly) {
  const MemoryUse before = cpu_memory_use();
  {
    const at::Tensor a = at::empty({1001});
    EXPECT_EQ(cpu_memory_use().live_bytes - before.live_bytes, 4004);
    const at::Tensor b = at::empty({3, 1000, 1000}, at::kByte);
    EXPECT_EQ(cpu_memory_use().live_bytes - before.live_bytes, 3004004);
    const at::Tensor view = b.narrow(0, 1, 1);
    EXPECT_EQ(cpu_memory_use().live_bytes - before.live_bytes, 3004004);
  }
  EXPECT_EQ(cpu_memory_use().live_bytes, before.live_bytes);
}

TEST_F(MemoryTracker, RemembersThePeakUntilItIsReset) {
  reset_cpu_peak();
  const std::int64_t before = cpu_memory_use().live_bytes;
  { const at::Tensor a = at::empty({5000000}); }
  EXPECT_EQ(cpu_memory_use().peak_bytes, before + 20000000);
  reset_cpu_peak();
  EXPECT_EQ(cpu_memory_use().peak_bytes, cpu_memory_use().live_bytes);
}

TEST_F(MemoryTracker, GivesAFreedBlockToTheNextTensorOfItsSize) {
  void* data = nullptr;
  {
    const at::Tensor a = at::empty({1000000});
    data = a.data_ptr();
  }
  const std::int64_t reserved = cpu_memory_use().reserved_bytes;
  const at::Tensor b = at::empty({999999});
  EXPECT_EQ(b.data_ptr(), data);
  EXPECT_EQ(cpu_memory_use().reserved_bytes, reserved);
}

TEST_F(MemoryTracker, KeepsTensorsOnCacheLinesAndHandlesEmptyOnes) {
  for (const std::int64_t size : {1, 100, 70000, 9000000}) {
    const at::Tensor a = at::empty({size}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64, 0u);
    a.fill_(7);
  }
  const std::int64_t before = cpu_memory_use().live_bytes;
  const at::Tensor empty = at::empty({0});
  EXPECT_EQ(cpu_memory_use().live_bytes, before);
}

TEST_F(MemoryTracker, ReturnsCachedBlocksRatherThanGrowWithoutBound) {
  reset_cpu_peak();
  for (std::int64_t size = 100; size < 400; size += 7) const at::Tensor a = at::empty({size << 20}, at::kByte);  // MiB
  EXPECT_LT(cpu_memory_use().reserved_bytes, (std::int64_t{400} << 20) * 3 / 2 + (std::int64_t{700} << 20));
}

}  // namespace
}  // namespace tempo::train
