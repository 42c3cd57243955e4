// A run.yaml in a folder of its own, for tests of configurations.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"
#include "train/run_config.h"

namespace tempo::testing {

class WrittenConfig {
 public:
  explicit WrittenConfig(const std::string& text) { write("run.yaml", text); }

  void write(const std::filesystem::path& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  train::RunConfig load(const std::vector<std::string>& overrides = {}) const {
    return train::load_run_config(file(), overrides);
  }

  /// The message of the c10::ValueError, with the folder's name taken out: "run.yaml:3:5: ...".
  std::string error(const std::vector<std::string>& overrides = {}) const {
    std::string text = value_error_of([&] { load(overrides); });
    const std::string prefix = folder_.path().string() + "/";
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }

  std::filesystem::path file() const { return folder_ / "run.yaml"; }
  const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

/// A complete configuration with the required keys only, with `more` after it.
inline std::string minimal_yaml(const std::string& more = "") {
  return "data: {shards: a.hdf5}\n"
         "train: {steps: 10, global_batch: 8}\n"
         "run: {dir: runs/x}\n" +
         more;
}

}  // namespace tempo::testing
