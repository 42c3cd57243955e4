// Runs CUDA kernels on the CPU: every thread of a block is a fiber, blocks run one after another.
//
// Included ahead of a .cu or .cuh file that g++ compiles, it defines the part of CUDA C++ that this project's kernels use:
// threadIdx, blockIdx, blockDim and gridDim (x), static shared memory (TEMPO_SHARED), __syncthreads, __shfl_xor_sync and
// __shfl_down_sync with full masks. A warp runs as far as it can before the next one begins, the first warp first or, by
// choice, the last: as far apart as threads can be, so that most missing barriers give wrong results in one order or the
// other. What is reported, as a std::logic_error: threads that wait at different barriers, or that end while others wait.
// Shared memory holds no number (all bits set) when a block begins.
// Not for: atomics, dynamic shared memory, speed. Thread rule: one launch at a time, always from the same thread.
#pragma once

#if defined(__CUDACC__)
#error "cuda_emulation.h is for g++; nvcc has the real thing"
#endif

#include <boost/context/fiber.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__ inline
#define __device__
#define __launch_bounds__(...)
#define TEMPO_SHARED(type, name, count) static ::tempo::testing::SharedArray<type, count> name
#define TEMPO_HERE(what) (::tempo::testing::Barrier{what, __FILE__, __LINE__})
#define __syncthreads() ::tempo::testing::emulator().wait(TEMPO_HERE("__syncthreads"))
#define __shfl_xor_sync(mask, value, lanes) \
  ::tempo::testing::emulator().shuffle(TEMPO_HERE("__shfl_xor_sync"), mask, value, threadIdx.x ^ unsigned(lanes))
#define __shfl_down_sync(mask, value, distance) \
  ::tempo::testing::emulator().shuffle(TEMPO_HERE("__shfl_down_sync"), mask, value, threadIdx.x + unsigned(distance))

struct CudaIndex {
  unsigned x = 0;
};
inline CudaIndex threadIdx, blockIdx, blockDim, gridDim;  // of the fiber that runs

namespace tempo::testing {

inline constexpr unsigned kWarpLanes = 32;

/// Where a thread waits: one call in the source.
struct Barrier {
  const char* what;
  const char* file;
  int line;

  bool operator==(const Barrier& other) const { return what == other.what && file == other.file && line == other.line; }
  bool is_warps() const { return std::strcmp(what, "__syncthreads") != 0; }
  std::string text() const { return std::string(file) + ":" + std::to_string(line) + " (" + what + ")"; }
};

class Emulator {
 public:
  /// Runs `body` once per thread of every block. Throws std::logic_error when threads part at a barrier.
  void run(const char* name, unsigned num_blocks, unsigned num_threads, const std::function<void()>& body) {
    if (num_threads == 0 || num_threads % kWarpLanes != 0)
      throw std::logic_error(std::string(name) + ": blocks must be whole warps");
    kernel_names_.insert(name);
    gridDim.x = std::min(num_blocks, max_blocks);
    blockDim.x = num_threads;
    body_ = &body;
    if (threads_.size() != num_threads) start_threads(num_threads);
    for (unsigned block = 0; block < gridDim.x; ++block) {
      blockIdx.x = block;
      for (const auto& [data, bytes] : shared_memory_) std::memset(data, 0xFF, bytes);
      try {
        run_block();
      } catch (const std::logic_error& error) {
        // Fibers that still wait are kept for good: unwinding their stacks is what AddressSanitizer does not understand.
        abandoned_.push_back(std::move(threads_));
        threads_.clear();
        throw std::logic_error(std::string(name) + ", block " + std::to_string(block) + ": " + error.what());
      }
    }
  }

  /// Called by a thread: stops it until all that the barrier is for have come to it.
  void wait(const Barrier& barrier) {
    Thread& self = threads_[threadIdx.x];
    self.state = State::kWaiting;
    self.barrier = barrier;
    host_ = std::move(host_).resume();
  }

  /// Called by a thread: the value of thread `source`, or its own where that lies outside its warp.
  template <typename T>
  T shuffle(const Barrier& barrier, unsigned mask, T value, unsigned source) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(Slot));
    if (mask != ~0u) fail(barrier.text() + ": only full masks are emulated");
    const unsigned thread = threadIdx.x;
    // Two slots by turns: no lane can be two shuffles ahead of another.
    const unsigned turn = threads_[thread].turn++ % 2;
    std::memcpy(threads_[thread].slots[turn].data(), &value, sizeof value);
    wait(barrier);
    if (source / kWarpLanes == thread / kWarpLanes)
      std::memcpy(&value, threads_[source].slots[turn].data(), sizeof value);
    return value;
  }

  /// Called by a thread: ends the launch with this report.
  void fail(const std::string& report) {
    fault_ = report;
    // Never resumed; but a function that visibly cannot return makes AddressSanitizer look at the stack's bounds.
    while (!fault_.empty()) host_ = std::move(host_).resume();
  }

  void add_shared_memory(void* data, std::size_t bytes) {
    std::memset(data, 0xFF, bytes);
    shared_memory_.emplace_back(data, bytes);
  }

  /// Names of all kernels that were run.
  const std::set<std::string>& kernel_names() const { return kernel_names_; }

  /// A smaller grid than the launch asks for, and the other order of warps and lanes: kernels have to give the same results.
  unsigned max_blocks = std::numeric_limits<unsigned>::max();
  bool backwards = false;

 private:
  using Slot = std::array<unsigned char, 8>;
  enum class State { kReady, kWaiting, kDone };

  struct Thread {
    boost::context::fiber fiber;  // where it stopped
    State state = State::kReady;
    Barrier barrier{"", "", 0};
    unsigned turn = 0;
    std::array<Slot, 2> slots{};
  };

  /// A fiber lives for many launches: it runs the body of the present one, then stops until the next block.
  void start_threads(unsigned num_threads) {
    threads_.clear();
    threads_.resize(num_threads);
    for (Thread& thread : threads_) {
      thread.fiber = boost::context::fiber([this](boost::context::fiber&& host) {
        host_ = std::move(host);
        for (;;) {
          (*body_)();
          threads_[threadIdx.x].state = State::kDone;
          host_ = std::move(host_).resume();
        }
        return boost::context::fiber();
      });
    }
  }

  void run_block() {
    for (Thread& thread : threads_) thread.state = State::kReady;
    const auto num_warps = static_cast<unsigned>(threads_.size()) / kWarpLanes;
    do {
      for (unsigned n = 0; n < num_warps; ++n) run_warp((backwards ? num_warps - 1 - n : n) * kWarpLanes);
    } while (pass_block_barrier());
  }

  /// Runs a warp alone, through its own barriers, until it can only wait for others.
  void run_warp(unsigned first) {
    do {
      for (unsigned n = 0; n < kWarpLanes; ++n) {
        const unsigned t = first + (backwards ? kWarpLanes - 1 - n : n);
        if (threads_[t].state != State::kReady) continue;
        threadIdx.x = t;
        threads_[t].fiber = std::move(threads_[t].fiber).resume();
        if (!fault_.empty()) throw std::logic_error(std::exchange(fault_, {}));
      }
    } while (threads_[first].barrier.is_warps() && pass_together(first, first + kWarpLanes));
  }

  /// Lets all threads go on from __syncthreads; false when all have ended.
  bool pass_block_barrier() {
    const auto ended = [](const Thread& thread) { return thread.state == State::kDone; };
    if (std::all_of(threads_.begin(), threads_.end(), ended)) return false;
    if (threads_[0].barrier.is_warps() || !pass_together(0, static_cast<unsigned>(threads_.size()))) {
      throw std::logic_error(parting_text());
    }
    return true;
  }

  /// If threads [first, end) all wait at one barrier, makes them ready.
  bool pass_together(unsigned first, unsigned end) {
    for (unsigned t = first; t < end; ++t) {
      if (threads_[t].state != State::kWaiting || !(threads_[t].barrier == threads_[first].barrier)) return false;
    }
    for (unsigned t = first; t < end; ++t) threads_[t].state = State::kReady;
    return true;
  }

  /// One thread of every place where threads are, when they cannot go on.
  std::string parting_text() const {
    std::string text = "threads part at a barrier";
    std::set<std::string> seen;
    for (unsigned t = 0; t < threads_.size(); ++t) {
      const std::string place =
          threads_[t].state == State::kDone ? "has ended" : "waits at " + threads_[t].barrier.text();
      if (seen.insert(place).second) text += "; thread " + std::to_string(t) + " " + place;
    }
    return text;
  }

  std::vector<Thread> threads_;
  std::vector<std::vector<Thread>> abandoned_;
  boost::context::fiber host_;  // the caller of run(), while a thread runs
  const std::function<void()>* body_ = nullptr;
  std::vector<std::pair<void*, std::size_t>> shared_memory_;
  std::set<std::string> kernel_names_;
  std::string fault_;
};

/// Never destroyed, as fibers are not.
inline Emulator& emulator() {
  static Emulator* const instance = new Emulator;
  return *instance;
}

inline void emulate(const char* name, unsigned num_blocks, unsigned num_threads, const std::function<void()>& body) {
  emulator().run(name, num_blocks, num_threads, body);
}

/// An array that the threads of a block share: static, since blocks run one after another.
template <typename T, std::size_t kCount>
class SharedArray {
 public:
  SharedArray() { emulator().add_shared_memory(data_, sizeof data_); }
  T& operator[](std::size_t i) {
    if (i >= kCount) emulator().fail("shared memory: index " + std::to_string(i) + " of " + std::to_string(kCount));
    return data_[i];
  }

 private:
  T data_[kCount];
};

}  // namespace tempo::testing
