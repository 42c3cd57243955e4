#include "train/run_dir.h"

#include <c10/util/Exception.h>

#include <string_view>
#include <vector>

#include "model/durable_file.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.yaml";
// Everything a run writes; overwriting removes these and nothing else. The configuration goes last: it marks the folder as a run's.
constexpr const char* kEntries[] = {"export", "metrics.jsonl", "log", kConfig};
constexpr std::string_view kEventPrefix = "events.out.tfevents.";  // their names go on with time, host and process

bool is_empty_folder(const fs::path& path) {
  return fs::is_directory(path) && fs::directory_iterator(path) == fs::directory_iterator();
}

void remove_events(const fs::path& folder, std::error_code& error) {
  if (!fs::exists(folder)) return;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().native().compare(0, kEventPrefix.size(), kEventPrefix) == 0) found.push_back(*entry);
  }
  for (const fs::path& file : found) {
    if (!error) fs::remove(file, error);
  }
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
  remove_events(path_, error);
  for (const char* entry : kEntries) {
    if (!error) fs::remove_all(path_ / entry, error);
  }
  if (!error) fs::create_directories(path_ / "log", error);
  TORCH_CHECK(!error, "run.dir: ", path_.string(), " cannot be made: ", error.message());
  model::write_durable_text(path_ / kConfig, config_yaml);
}

}  // namespace tempo::train
