// The folder of a run: made when everything else has been checked, never mixed with an older run's.
//
//   config.yaml            the resolved configuration; `tempo train` on it gives the same run
//   log/rank-0.log         what stderr shows without a terminal
//   metrics.jsonl          one JSON object per logged step and per evaluation
//   events.out.tfevents.*  the same for TensorBoard
//   export/                the trained model as a Hugging Face folder
// Not for: what the files say. Thread rule: one owner.
#pragma once

#include <filesystem>
#include <string>

namespace tempo::train {

class RunDirectory {
 public:
  /// Throws c10::ValueError when `path` holds a run already and `overwrite` is false, or when it holds something else, and
  /// c10::Error when it cannot be written. Touches nothing.
  static void check(const std::filesystem::path& path, bool overwrite);

  /// check, then makes the folder with config.yaml and log/; with `overwrite` what an older run left there is removed first.
  RunDirectory(std::filesystem::path path, bool overwrite, const std::string& config_yaml);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log_file() const { return path_ / "log" / "rank-0.log"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path export_folder() const { return path_ / "export"; }

 private:
  std::filesystem::path path_;
};

}  // namespace tempo::train
