// The folder of a run: made when everything else has been checked, never mixed with an older run's.
//
//   config.yaml            the resolved configuration; `tempo train` on it gives the same run
//   environment.json       versions and whatever else decides the numbers
//   log/rank-0.log         what stderr shows without a terminal
//   metrics.jsonl          one JSON object per logged step and per evaluation
//   events.out.tfevents.*  the same for TensorBoard
//   checkpoints/           the states that the run can be continued from
//   export/                the trained model as a Hugging Face folder
//   .lock                  held by the process that writes here
//   .request               what that process is asked to do (run_control.h); gone when it has seen it
// Not for: what the files say. Thread rule: one owner.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace tempo::train {

class RunDirectory {
 public:
  /// Throws c10::ValueError when `path` holds a run already and `overwrite` is false, or when it holds something else, and
  /// c10::Error when it cannot be written. Touches nothing.
  static void check(const std::filesystem::path& path, bool overwrite);

  /// Whether a process has the run at `path`.
  static bool is_in_use(const std::filesystem::path& path);

  /// Where a run at `path` looks for what it is asked to do.
  static std::filesystem::path request_file(const std::filesystem::path& path) { return path / ".request"; }
  static std::filesystem::path taken_request_file(const std::filesystem::path& path) { return path / ".request.taken"; }

  /// The folder of a run that is to go on. Throws c10::ValueError when there is none at `path`, or another process has it.
  static RunDirectory reopen(std::filesystem::path path);

  /// check, then makes the folder with config.yaml and log/; with `overwrite` what an older run left there is removed first.
  RunDirectory(std::filesystem::path path, bool overwrite, const std::string& config_yaml);

  ~RunDirectory();
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Replaces the resolved configuration.
  void write_config(const std::string& config_yaml);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_file() const { return path_ / "config.yaml"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path log_file() const { return path_ / "log" / "rank-0.log"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path export_folder() const { return path_ / "export"; }

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  void lock();

  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace tempo::train
