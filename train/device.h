// The device of a run.
//
// Not for: its memory (memory_tracker.h). Thread rule: functions without state.
#pragma once

#include <c10/core/Device.h>

#include "train/run_config.h"

namespace tempo::train {

/// Sets the number of threads and returns the device that the configuration asks for. Throws c10::ValueError where it is not there
/// or cannot run the layers.
c10::Device open_device(const RunConfig& config);

/// Returns when everything that was queued on the device is done.
void wait_for(c10::Device device);

}  // namespace tempo::train
