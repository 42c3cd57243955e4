// How a working run is asked to save or to end: by a signal, or by `tempo ctl` through a file in its directory.
//
// Not for: what the run does then (run_loop.h). Thread rule: one owner.
#pragma once

#include <filesystem>
#include <string>

namespace tempo::train {

enum class Request { kSave, kStop };

/// Leaves a request for the process that has the run at `run_dir`. One that it has not seen yet stays if it asks for more.
/// Throws c10::ValueError where there is no run or no process has it.
void ask(const std::filesystem::path& run_dir, Request request);

class RunControl {
 public:
  /// `run_dir` is this process's own.
  explicit RunControl(const std::filesystem::path& run_dir);

  /// Who asked for the end: a signal's name or "tempo ctl"; null while nobody has. Cheap enough for every micro-batch.
  const char* stop_reason();

  /// Whether somebody has asked for a save since the last call.
  bool take_save_request();

 private:
  void look();

  std::filesystem::path file_;
  bool is_stop_asked_ = false;
  bool is_save_asked_ = false;
};

}  // namespace tempo::train
