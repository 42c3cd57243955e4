#include "train/run_control.h"

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "model/durable_file.h"
#include "train/run_dir.h"
#include "train/stop_request.h"

namespace tempo::train {
namespace {

constexpr const char* kSaveText = "save";
constexpr const char* kStopText = "stop";

}  // namespace

void ask(const std::filesystem::path& run_dir, Request request) {
  TORCH_CHECK_VALUE(std::filesystem::is_directory(run_dir), run_dir.string(), " is no folder of a run");
  TORCH_CHECK_VALUE(RunDirectory::is_in_use(run_dir), run_dir.string(), ": no tempo train works on this run");
  const std::filesystem::path file = RunDirectory::request_file(run_dir);
  // One that waits is the same, or asks for the end and so for a save too.
  if (request == Request::kSave && std::filesystem::exists(file)) return;
  model::write_durable_text(file, std::string(request == Request::kSave ? kSaveText : kStopText) + "\n");
}

RunControl::RunControl(const std::filesystem::path& run_dir) : file_(RunDirectory::request_file(run_dir)) {}

void RunControl::look() {
  if (::access(file_.c_str(), F_OK) != 0) return;
  // Taken away before it is read: one that arrives meanwhile must not go unseen.
  const std::filesystem::path taken = RunDirectory::taken_request_file(file_.parent_path());
  std::error_code error;
  std::filesystem::rename(file_, taken, error);
  if (error) return;
  std::string text;
  std::ifstream(taken) >> text;
  std::filesystem::remove(taken, error);
  is_save_asked_ = is_save_asked_ || text == kSaveText;
  is_stop_asked_ = is_stop_asked_ || text == kStopText;
  if (text != kSaveText && text != kStopText) spdlog::warn("{}: '{}' is no request", file_.string(), text);
}

const char* RunControl::stop_reason() {
  look();
  if (const char* signal = StopRequest::requested()) return signal;
  return is_stop_asked_ ? "tempo ctl" : nullptr;
}

bool RunControl::take_save_request() {
  look();
  return std::exchange(is_save_asked_, false);
}

}  // namespace tempo::train
