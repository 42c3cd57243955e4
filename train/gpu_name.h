// The name of a GPU, which only CUDA knows. In builds with CUDA only.
//
// Not for: anything else about devices. Thread rule: as CUDA.
#pragma once

#include <string>

namespace tempo::train {

/// What CUDA calls its device `index`. Throws std::runtime_error when there is none.
std::string gpu_name(int index);

}  // namespace tempo::train
