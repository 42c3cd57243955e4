// How long something takes, for the programs of this folder. Thread rule: a function without state.
#pragma once

#include <chrono>

namespace tempo::bench {

template <typename Run>
double seconds_of(Run&& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tempo::bench
