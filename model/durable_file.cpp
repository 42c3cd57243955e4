#include "model/durable_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace tempo::model {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  const int error = errno;
  TORCH_CHECK(false, path.string(), " ", what, ": ", std::strerror(error), " (errno ", error, ")");
}

constexpr const char* kAside = ".writing-";

fs::path aside_of(const fs::path& path) {
  return path.parent_path() / ("." + path.filename().string() + kAside + std::to_string(::getpid()));
}

fs::path without_trailing_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

}  // namespace

void flush_to_disk(const fs::path& path) {
  const fs::path target = path.empty() ? fs::path(".") : path;
  const int descriptor = ::open(target.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(target, "cannot be opened");
  const int result = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  if (result != 0) fail(target, "cannot be flushed");
}

void throw_if(const std::error_code& error, const fs::path& path, const char* what) {
  TORCH_CHECK(!error, path.string(), " ", what, ": ", error.message(), " (errno ", error.value(), ")");
}

void make_durable_folder(const fs::path& path) {
  std::vector<fs::path> missing;
  for (fs::path folder = without_trailing_slash(path); !folder.empty() && !fs::exists(folder);
       folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  std::error_code error;
  fs::create_directories(path, error);
  throw_if(error, path, "cannot be made");
  for (const fs::path& folder : missing) flush_to_disk(folder.parent_path());
}

DurableFile::DurableFile(fs::path path) : path_(std::move(path)), aside_(aside_of(path_)) {
  descriptor_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(path_, "cannot be written");
}

DurableFile::~DurableFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(aside_.c_str());
}

void DurableFile::write(const void* data, std::size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "cannot be written");
    from += written;
    size -= static_cast<std::size_t>(written);
  }
}

void DurableFile::commit() {
  if (::fsync(descriptor_) != 0) fail(path_, "cannot be flushed");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(path_, "cannot be closed");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside_.c_str());
    errno = error;
    fail(path_, "cannot be put in place");
  }
  flush_to_disk(path_.parent_path());  // a rename is on the disk once its folder is
}

void write_durable_text(const fs::path& path, std::string_view text) {
  DurableFile file(path);
  file.write(text);
  file.commit();
}

std::ofstream open_for_append(const fs::path& path) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  if (!file.good()) fail(path, "cannot be written");
  return file;
}

void append_text(std::ofstream& file, const fs::path& path, std::string_view text) {
  errno = 0;
  file << text << std::flush;
  if (!file.good()) fail(path, "cannot be written");
}

bool is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.front() == '.' && name.find(kAside) != std::string::npos;
}

void remove_leftovers(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (is_leftover(entry->path())) leftovers.push_back(entry->path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, ignored);
}

DurableFolder::DurableFolder(fs::path target) : target_(without_trailing_slash(target)), aside_(aside_of(target_)) {
  TORCH_CHECK_VALUE(!fs::exists(target_), target_.string(), " exists already; nothing was written");
  if (target_.has_parent_path()) make_durable_folder(target_.parent_path());
  std::error_code error;
  fs::create_directory(aside_, error);
  throw_if(error, target_, "cannot be made");
}

DurableFolder::~DurableFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(aside_, ignored);
}

void DurableFolder::commit() {
  flush_to_disk(aside_);
  if (::rename(aside_.c_str(), target_.c_str()) != 0) fail(target_, "cannot be put in place");
  committed_ = true;
  flush_to_disk(target_.parent_path());
}

}  // namespace tempo::model
