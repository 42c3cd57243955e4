// The emulator and the guarded memory that the tests of the CUDA kernels stand on.
#include "tests/support/cuda_emulation.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/ops/block.cuh"
#include "tests/support/guarded_memory.h"

namespace tempo::testing {
namespace {

const GuardedMemory& guarded_memory = GuardedMemory::install();

constexpr int kThreads = layers::cuda::kThreads;

/// What emulate() throws, or nothing.
std::string fault_of(const std::function<void()>& body) {
  try {
    emulate("planted", 2, kThreads, body);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(CudaEmulation, ReportsThreadsThatWaitAtDifferentBarriers) {
  const std::string fault = fault_of([] {
    if (threadIdx.x < 40) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_THAT(fault, ::testing::HasSubstr("planted, block 0: threads part at a barrier; thread 0 waits at"));
  EXPECT_THAT(fault, ::testing::HasSubstr("; thread 40 waits at"));
  EXPECT_EQ(fault_of([] { __syncthreads(); }), "") << "and goes on to work";
}

TEST(CudaEmulation, ReportsThreadsThatEndBeforeABarrier) {
  EXPECT_THAT(fault_of([] {
                if (threadIdx.x != 17) __syncthreads();
              }),
              ::testing::HasSubstr("; thread 17 has ended"));
  EXPECT_THAT(fault_of([] {
                if (threadIdx.x < 20) __shfl_down_sync(~0u, 1, 1);
              }),
              ::testing::HasSubstr("(__shfl_down_sync); thread 20 has ended"));
}

TEST(CudaEmulation, ReportsAnIndexOutsideSharedMemory) {
  EXPECT_THAT(fault_of([] {
                TEMPO_SHARED(int, few, 4);
                few[threadIdx.x] = 1;
              }),
              ::testing::HasSubstr("index 4 of 4"));
}

TEST(CudaEmulation, GivesNoOldNumbersInSharedMemory) {
  std::vector<float> seen;
  emulate("two blocks", 2, kThreads, [&] {
    TEMPO_SHARED(float, shared, 1);
    if (threadIdx.x == 0) {
      seen.push_back(shared[0]);
      shared[0] = 1;
    }
  });
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_TRUE(std::isnan(seen[0]) && std::isnan(seen[1]));
}

TEST(CudaEmulation, ShufflesWithinWarps) {
  std::vector<int> down(kThreads), swapped(kThreads);
  emulate("shuffles", 1, kThreads, [&] {
    const auto thread = static_cast<int>(threadIdx.x);
    const int from_next = __shfl_down_sync(~0u, thread, 4);
    const int from_pair = __shfl_xor_sync(~0u, thread, 1);
    down[threadIdx.x] = from_next;
    swapped[threadIdx.x] = from_pair;
  });
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(down[t], t % 32 < 28 ? t + 4 : t);
    EXPECT_EQ(swapped[t], t ^ 1);
  }
}

TEST(CudaEmulation, GivesEveryThreadTheSumOfItsBlock) {
  std::vector<std::int64_t> sums;
  std::vector<float> largest;
  emulate("sums", 3, kThreads, [&] {
    const std::int64_t sum = layers::cuda::block_sum(std::int64_t{blockIdx.x} + threadIdx.x);
    const float most = layers::cuda::block_max(-static_cast<float>(threadIdx.x) - 1);
    sums.push_back(sum);
    largest.push_back(most);
  });
  ASSERT_EQ(sums.size(), 3u * kThreads);
  for (int i = 0; i < 3 * kThreads; ++i) {
    EXPECT_EQ(sums[i], 255 * 128 + 256 * (i / kThreads));
    EXPECT_EQ(largest[i], -1);
  }
}

TEST(GuardedMemory, CountsWritesBesideATensor) {
  const int before = GuardedMemory::num_damaged();
  {
    const at::Tensor tensor = at::empty({5});
    EXPECT_TRUE(at::isnan(tensor).all().item<bool>());
    tensor.mutable_data_ptr<float>()[5] = 0;
  }
  EXPECT_EQ(GuardedMemory::num_damaged(), before + 1);
}

}  // namespace
}  // namespace tempo::testing
