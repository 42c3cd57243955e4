// Asks about checkpoints, many in one process; a line for each folder.
//   checkpoint_probe FOLDER...           a checkpoint: "intact STEP" or "damaged REASON"
//   checkpoint_probe --newest FOLDER...  a run's checkpoints: "newest STEP", of the one a resume would take, or "none"
#include <c10/util/Exception.h>

#include <iostream>
#include <optional>
#include <string>

#include "train/checkpoint.h"

namespace {

std::string state_of(const char* folder) {
  try {
    return "intact " + std::to_string(tempo::train::verify_checkpoint(folder).step);
  } catch (const c10::ValueError& error) {
    return std::string("damaged ") + error.what_without_backtrace();
  }
}

std::string newest_in(const char* folder) {
  const auto found = tempo::train::newest_intact(folder, [](const auto&, const auto&) {});
  return found ? "newest " + std::to_string(found->state.step) : "none";
}

}  // namespace

int main(int argc, char** argv) {
  const bool wants_newest = argc > 1 && std::string(argv[1]) == "--newest";
  for (int index = wants_newest ? 2 : 1; index < argc; ++index) {
    std::cout << (wants_newest ? newest_in(argv[index]) : state_of(argv[index])) << "\n";
  }
  return 0;
}
