#include "train/run_dir.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "model/durable_file.h"
#include "train/event_file.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.yaml";
// Everything a run writes but its configuration, which marks the folder as a run's and is replaced; overwriting removes these and
// nothing else.
constexpr const char* kEntries[] = {"export", "metrics.jsonl", "log", "environment.json"};
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kLock = ".lock";
constexpr const char* kLog = "log";

/// What a run leaves behind that was ended before its configuration was there counts for nothing.
bool is_empty_folder(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  for (const auto& entry : fs::directory_iterator(path)) {
    const fs::path name = entry.path().filename();
    if (name != kLock && name != kLog && name.native().rfind(RunDirectory::request_file("").native(), 0) != 0 &&
        !model::is_leftover(name))
      return false;
  }
  return true;
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
  model::make_durable_folder(path_);
  lock();
  // Checkpoints go first: a run without them is not taken for one that can go on.
  std::error_code error;
  fs::remove_all(path_ / kCheckpoints, error);
  if (!error) model::flush_to_disk(path_);
  for (const fs::path& file : event_files(path_)) {
    if (!error) fs::remove(file, error);
  }
  for (const char* entry : kEntries) {
    if (!error) fs::remove_all(path_ / entry, error);
  }
  if (!error) fs::create_directories(path_ / kLog, error);
  TORCH_CHECK(!error, "run.dir: ", path_.string(), " cannot be made: ", error.message());
  model::flush_to_disk(path_);  // the new configuration must not meet what belongs to the old one
  write_config(config_yaml);
}

bool RunDirectory::is_in_use(const fs::path& path) {
  const fs::path file = path / kLock;
  const int lock = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  TORCH_CHECK(lock >= 0 || errno == ENOENT, file.string(), " cannot be opened: ", std::strerror(errno));
  if (lock < 0) return false;
  const bool is_free = ::flock(lock, LOCK_SH | LOCK_NB) == 0;
  ::close(lock);
  return !is_free;
}

RunDirectory RunDirectory::reopen(fs::path path) {
  TORCH_CHECK_VALUE(fs::is_directory(path) && fs::exists(path / kConfig), path.string(),
                    " is no run: a folder with config.yaml, which tempo train makes");
  RunDirectory directory(std::move(path));
  directory.lock();
  return directory;
}

RunDirectory::~RunDirectory() {
  if (lock_ < 0) return;
  std::error_code ignored;
  const fs::path request = request_file(path_);
  if (fs::exists(request, ignored)) fs::remove(request, ignored);  // too late
  ::close(lock_);
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

void RunDirectory::write_config(const std::string& config_yaml) {
  model::write_durable_text(path_ / kConfig, config_yaml);
}

void RunDirectory::lock() {
  const fs::path file = path_ / kLock;
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  TORCH_CHECK(lock_ >= 0, file.string(), " cannot be written: ", std::strerror(errno));
  // Who only asks whether it is in use (is_in_use) has it for a moment.
  bool is_locked = ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
  for (int attempt = 0; attempt < 10 && !is_locked; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    is_locked = ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
  }
  TORCH_CHECK_VALUE(is_locked, "run.dir: ", path_.string(), " is in use by another tempo train");
  model::remove_leftovers(path_);
  std::error_code error;
  fs::remove(taken_request_file(path_), error);
  if (!error) fs::remove(request_file(path_), error);  // meant for a process that has ended
  model::throw_if(error, request_file(path_), "cannot be removed");
}

}  // namespace tempo::train
