#include "train/run_dir.h"

#include <c10/util/Exception.h>

#include "model/durable_file.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.yaml";
// Everything a run writes; overwriting removes these and nothing else. The configuration goes last: it marks the folder as a run's.
constexpr const char* kEntries[] = {"export", "metrics.jsonl", "log", kConfig};

bool is_empty_folder(const fs::path& path) {
  return fs::is_directory(path) && fs::directory_iterator(path) == fs::directory_iterator();
}

}  // namespace

void RunDirectory::check(const fs::path& path, bool overwrite) {
  if (!fs::exists(path) || is_empty_folder(path)) return;
  TORCH_CHECK_VALUE(fs::is_directory(path), "run.dir: ", path.string(), " is a file");
  TORCH_CHECK_VALUE(fs::exists(path / kConfig), "run.dir: ", path.string(),
                    " holds other things than a run; choose an empty or a new folder");
  TORCH_CHECK_VALUE(overwrite, "run.dir: ", path.string(),
                    " holds a run already; choose another folder, or replace that run with run.overwrite=true");
}

RunDirectory::RunDirectory(fs::path path, bool overwrite, const std::string& config_yaml) : path_(std::move(path)) {
  check(path_, overwrite);
  std::error_code error;
  for (const char* entry : kEntries) {
    if (!error) fs::remove_all(path_ / entry, error);
  }
  if (!error) fs::create_directories(path_ / "log", error);
  TORCH_CHECK(!error, "run.dir: ", path_.string(), " cannot be made: ", error.message());
  model::write_durable_text(path_ / kConfig, config_yaml);
}

}  // namespace tempo::train
