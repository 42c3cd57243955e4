// Tells for each folder that is named whether it is an intact checkpoint: "intact STEP" or "damaged REASON", a line each.
#include <c10/util/Exception.h>

#include <iostream>

#include "train/checkpoint.h"

int main(int argc, char** argv) {
  for (int index = 1; index < argc; ++index) {
    try {
      const std::int64_t step = tempo::train::verify_checkpoint(argv[index]).step;
      std::cout << "intact " << step << "\n";
    } catch (const c10::ValueError& error) {
      std::cout << "damaged " << error.what_without_backtrace() << "\n";
    }
  }
  return 0;
}
