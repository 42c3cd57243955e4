#include "train/shard_folder.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/durable_file.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStaging = ".partial";
constexpr const char* kLock = "lock";
constexpr const char* kMoving = "moving";
constexpr const char* kValidation = "validation";

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  TORCH_CHECK(false, "prepare.output: ", path.string(), ": ", reason);
}

void fail_on(const std::error_code& error, const fs::path& path, const char* what) {
  if (error) fail(path, std::string(what) + ": " + error.message());
}

bool holds_shards(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (entry->path().extension() == ".hdf5") return true;
  }
  return false;
}

/// The shards that a manifest or a list of moves names, relative to the folder; nothing else that may stand there.
std::vector<fs::path> listed_shards(const fs::path& list) {
  std::ifstream file(list);
  const nlohmann::json manifest = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<fs::path> shards;
  if (!manifest.is_object() || !manifest.contains("shards")) return shards;
  for (const auto& shard : manifest["shards"]) {
    const fs::path path = fs::path(shard.value("path", std::string())).lexically_normal();
    if (path.extension() == ".hdf5" && path.is_relative() && *path.begin() != "..") shards.push_back(path);
  }
  return shards;
}

}  // namespace

void ShardFolder::check(const fs::path& folder, bool overwrite) {
  TORCH_CHECK_VALUE(!fs::exists(folder) || fs::is_directory(folder), "prepare.output: ", folder.string(),
                    " is a file; a folder is needed");
  const bool is_finished = fs::exists(folder / kPrepareManifest);
  TORCH_CHECK_VALUE(
      !is_finished || overwrite, "prepare.output: ", folder.string(),
      " holds a finished set of shards; choose another folder, or replace it with prepare.overwrite=true");
  TORCH_CHECK_VALUE(is_finished || fs::exists(folder / kStaging) || !holds_shards(folder),
                    "prepare.output: ", folder.string(),
                    " holds .hdf5 files that tempo prepare did not write; choose another folder");
}

ShardFolder::ShardFolder(fs::path folder, bool overwrite) : folder_(std::move(folder)), staging_(folder_ / kStaging) {
  check(folder_, overwrite);
  const bool is_finished = fs::exists(folder_ / kPrepareManifest);
  for (fs::path missing = folder_; !missing.empty() && !fs::exists(missing); missing = missing.parent_path()) {
    made_folders_.push_back(missing);
  }
  std::error_code error;
  fs::create_directories(staging_, error);
  TORCH_CHECK_VALUE(!error, "prepare.output: ", folder_.string(), ": cannot be written: ", error.message());
  lock_ = ::open((staging_ / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  TORCH_CHECK_VALUE(lock_ >= 0, "prepare.output: ", folder_.string(), ": cannot be written: ", std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(std::exchange(lock_, -1));
    TORCH_CHECK_VALUE(false, "prepare.output: ", folder_.string(), " is in use by another tempo prepare");
  }
  // What a killed one left: first the shards that it had begun to name, then the list of them. With a manifest it had
  // not begun, or had ended.
  if (!is_finished && fs::exists(staging_ / kMoving)) {
    for (const fs::path& shard : listed_shards(staging_ / kMoving)) {
      if (!error) fs::remove(folder_ / shard, error);
    }
  }
  for (const auto& entry : fs::directory_iterator(staging_)) {
    if (!error && entry.path().filename() != kLock) fs::remove_all(entry.path(), error);
  }
  if (!error) fs::create_directory(staging_ / kValidation, error);
  fail_on(error, staging_, "cannot be emptied");
}

ShardFolder::~ShardFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  // Once shards have begun to move, what is left names them for the next prepare.
  if (committed_ || !fs::exists(staging_ / kMoving)) fs::remove_all(staging_, ignored);
  for (const fs::path& made : made_folders_) {
    if (!committed_ && !fs::remove(made, ignored)) break;  // not empty
  }
  ::close(lock_);
}

void ShardFolder::commit(const std::vector<fs::path>& shards,
                         const std::vector<std::pair<std::string, std::string>>& texts) {
  nlohmann::json moves = {{"shards", nlohmann::json::array()}};
  bool has_validation = false;
  for (const fs::path& shard : shards) {
    model::flush_to_disk(staging_ / shard);
    moves["shards"].push_back({{"path", shard.string()}});
    has_validation = has_validation || shard.has_parent_path();
  }
  const fs::path manifest = folder_ / kPrepareManifest;
  const std::vector<fs::path> older = listed_shards(manifest);
  for (const fs::path& shard : older) moves["shards"].push_back({{"path", shard.string()}});
  model::write_durable_text(staging_ / kMoving, moves.dump());
  std::error_code error;
  fs::remove(manifest, error);
  for (const fs::path& shard : older) {
    if (!error) fs::remove(folder_ / shard, error);
  }
  if (!error && has_validation) fs::create_directory(folder_ / kValidation, error);
  for (const fs::path& shard : shards) {
    if (!error) fs::rename(staging_ / shard, folder_ / shard, error);
  }
  fail_on(error, folder_, "shards cannot be put in place");
  if (has_validation) model::flush_to_disk(folder_ / kValidation);
  for (const auto& [name, content] : texts) model::write_durable_text(folder_ / name, content);
  committed_ = true;
}

void ShardFolder::check_shard(const fs::path& shard) {
  for (const fs::path& folder : {shard.parent_path(), shard.parent_path().parent_path()}) {
    const fs::path moving = folder / kStaging / kMoving;
    TORCH_CHECK_VALUE(!fs::exists(moving) || fs::exists(folder / kPrepareManifest), folder.string(),
                      ": a tempo prepare was ended while it put its shards in place; run it again, it starts over");
  }
}

}  // namespace tempo::train
