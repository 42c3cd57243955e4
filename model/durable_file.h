// Files and folders that are there whole or not at all: written beside their name, flushed to the disk, renamed.
//
// Not for: reading. Thread rule: one object, one thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tempo::model {

/// A file under construction. Without commit() nothing is left of it.
class DurableFile {
 public:
  /// Throws c10::Error naming path and errno, as all members do.
  explicit DurableFile(std::filesystem::path path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Flushes the file, gives it its name (replacing what had it) and flushes the folder.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path aside_;
  int descriptor_ = -1;
};

/// Flushes a file, or a folder's list of names. Throws c10::Error naming it and errno.
void flush_to_disk(const std::filesystem::path& path);

/// Throws c10::Error "PATH WHAT: reason (errno N)" where there is an error.
void throw_if(const std::error_code& error, const std::filesystem::path& path, const char* what);

/// Makes a folder and its missing parents, so that their names are on the disk. Throws c10::Error naming the folder and errno.
void make_durable_folder(const std::filesystem::path& path);

/// Writes a small file at once.
void write_durable_text(const std::filesystem::path& path, std::string_view text);

/// Opens a file to append to; it is made where it is not there. Throws c10::Error naming path and errno.
std::ofstream open_for_append(const std::filesystem::path& path);

/// Appends to a file that is open under `path` and hands it to the system. Throws c10::Error naming path and errno.
void append_text(std::ofstream& file, const std::filesystem::path& path, std::string_view text);

/// Whether the path is named as what is written aside: after a kill, what was left.
bool is_leftover(const std::filesystem::path& path);

/// Removes all of it from `folder`, as far as that can be done. Nobody may be writing there.
void remove_leftovers(const std::filesystem::path& folder);

/// A folder under construction: fill `path()`, then commit(). Without commit() nothing is left of it.
class DurableFolder {
 public:
  /// `target` must not exist, its parents are made. Throws c10::ValueError if it exists, c10::Error for errno.
  explicit DurableFolder(std::filesystem::path target);
  ~DurableFolder();
  DurableFolder(const DurableFolder&) = delete;
  DurableFolder& operator=(const DurableFolder&) = delete;

  const std::filesystem::path& path() const { return aside_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path aside_;
  bool committed_ = false;
};

}  // namespace tempo::model
