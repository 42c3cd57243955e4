// Scalars for TensorBoard: an event file (docs/formats.md, "Event file"), encoded here because Debian has no library that writes
// one.
//
// Not for: which scalars there are (metrics.h). Thread rule: one writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tempo::train {

struct Scalar {
  std::string tag;
  double value = 0;  ///< stored as float32
};

/// One record of an event file, framed and with its checksums. `wall_time` is in seconds since 1970; `step` may be 0.
std::string scalar_record(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars);

/// The event files in `folder`.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

/// Cuts every event file in `folder` off before its first record that is of a step after `step`, or of `step` itself and has
/// `last_tag` (empty: no such), or that is not whole.
void cut_back_events(const std::filesystem::path& folder, std::int64_t step, const std::string& last_tag);

class EventFile {
 public:
  /// Makes events.out.tfevents.<seconds>.<host>.<process>.<n> in `folder` (n from 0, the first that is free) and writes the
  /// record that opens such a file. Throws c10::Error naming the file when it cannot be written.
  explicit EventFile(const std::filesystem::path& folder);

  /// Appends the scalars as one event at the present time and hands it to the system. Throws c10::Error naming the file when
  /// that fails (a full disk).
  void write(std::int64_t step, const std::vector<Scalar>& scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace tempo::train
