// Preloaded into a program: records the calls that change files below a folder, or lets one of them fail.
//
//   TEMPO_IO_FOLDER  the folder, absolute and without symbolic links; it is watched like what is below it
//   TEMPO_IO_EXCEPT  what is left out: one path, with what is below it
//   TEMPO_IO_LOG     a file; every call adds, in the order over all threads, a line of seven fields between tabs
//                    CALL ERRNO INJECTED PATH TARGET NUMBER SIZE, then SIZE bytes, then a line end
//   TEMPO_IO_FAIL    CALL:N:ERRNO: the N-th CALL, from 1, does nothing and fails; ERRNO is a number
//                    short:N: the N-th write, or with N = 0 every one, writes half of its bytes
//
// CALL   open      for writing, or of a folder; NUMBER: its flags
//        write     NUMBER: the offset; SIZE: the bytes that were written
//        truncate  NUMBER: the length
//        rename    TARGET: the new name
//        fsync, mkdir, unlink (rmdir too)
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>

namespace {

/// The function that the program would have called.
template <typename Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
#define REAL(name) real(#name, &::name)

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Settings {
  std::string folder = variable("TEMPO_IO_FOLDER");
  std::string except = variable("TEMPO_IO_EXCEPT");
  char failing_call[16] = "";
  long failing_number = 0;
  int failure = 0;
  int log = -1;
  std::mutex mutex;
  long count = 0;

  Settings() {
    const std::string log_file = variable("TEMPO_IO_LOG");
    if (!log_file.empty()) log = REAL(open)(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    std::sscanf(variable("TEMPO_IO_FAIL").c_str(), "%15[a-z]:%ld:%d", failing_call, &failing_number, &failure);
  }
};

Settings& settings() {
  static Settings& made = *new Settings;  // never destroyed: the program may still write while it ends
  return made;
}

struct Call {
  const char* name;
  std::string path;
  std::string target = {};
  off_t number = 0;
  // Of a write:
  const void* data = nullptr;
  std::size_t* size = nullptr;
  int descriptor = -1;
};

std::string link_target(const std::string& link) {
  char buffer[PATH_MAX];
  const ssize_t length = ::readlink(link.c_str(), buffer, sizeof(buffer));
  return std::string(buffer, length < 0 ? 0 : static_cast<std::size_t>(length));
}

std::string path_of(int descriptor) {
  return link_target(descriptor == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(descriptor));
}

std::string absolute(int folder, const char* path) {
  std::filesystem::path whole(path);
  if (whole.is_relative()) whole = path_of(folder) / whole;
  std::string text = whole.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool is_below(const std::string& path, const std::string& folder) {
  return !folder.empty() && path.compare(0, folder.size(), folder) == 0 &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

bool is_turn_of(const std::string& call) {
  Settings& all = settings();
  return call == all.failing_call && (++all.count == all.failing_number || all.failing_number == 0);
}

void record(const Call& call, int error, bool is_injected, const std::string& bytes) {
  const int log = settings().log;
  if (log < 0) return;
  std::string text = call.name;
  for (const std::string& field : {std::to_string(error), std::to_string(is_injected), call.path, call.target,
                                   std::to_string(call.number), std::to_string(bytes.size())}) {
    text += "\t" + field;
  }
  text += "\n" + bytes + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = REAL(write)(log, text.data() + done, text.size() - done);
    if (written <= 0) std::abort();
    done += static_cast<std::size_t>(written);
  }
}

/// Does `action`, which returns -1 for a failure, unless the call is the one that is to fail.
template <typename Action>
auto observed(Call call, Action action) -> decltype(action()) {
  const int before = errno;
  if (!is_below(call.path, settings().folder) || is_below(call.path, settings().except)) {
    errno = before;
    return action();
  }
  const std::lock_guard lock(settings().mutex);
  const bool is_short = call.data != nullptr && is_turn_of("short");
  if (is_short) *call.size = (*call.size + 1) / 2;
  const bool fails = is_turn_of(call.name);
  errno = fails ? settings().failure : before;
  const auto result = fails ? -1 : action();
  const int after = errno;
  std::string bytes;
  if (call.data != nullptr && result > 0) {
    bytes.assign(static_cast<const char*>(call.data), static_cast<std::size_t>(result));
    if (call.number < 0) call.number = ::lseek(call.descriptor, 0, SEEK_CUR) - static_cast<off_t>(result);
  }
  record(call, result < 0 ? after : 0, fails || is_short, bytes);
  errno = after;
  return result;
}

template <typename Action>
int observed_open(const std::string& path, int flags, Action action) {
  const bool only_reads = (flags & O_ACCMODE) == O_RDONLY && (flags & (O_CREAT | O_TRUNC | O_DIRECTORY)) == 0;
  std::error_code ignored;
  // A folder is opened to flush it. Only below the watched one, as programs read many files.
  if (only_reads && !(is_below(path, settings().folder) && std::filesystem::is_directory(path, ignored))) {
    return action();
  }
  return observed({"open", path, "", flags}, action);
}

int flags_of(const char* mode) {
  const bool has_plus = std::string(mode).find('+') != std::string::npos;
  const int access = has_plus ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  return access | (mode[0] == 'r' ? 0 : O_CREAT) | (mode[0] == 'w' ? O_TRUNC : 0);
}

}  // namespace

#define TAKE_MODE(mode)                                                  \
  va_list arguments;                                                     \
  va_start(arguments, flags);                                            \
  const mode_t mode = (flags & O_CREAT) ? va_arg(arguments, mode_t) : 0; \
  va_end(arguments)

// Offsets have 64 bits either way.
#define SAME_AS(name) __attribute__((alias(#name)))

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
  TAKE_MODE(mode);
  return observed_open(absolute(folder, path), flags, [&] { return REAL(openat)(folder, path, flags, mode); });
}
int open(const char* path, int flags, ...) {
  TAKE_MODE(mode);
  return openat(AT_FDCWD, path, flags, mode);
}
int creat(const char* path, mode_t mode) { return openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }
int openat64(int folder, const char* path, int flags, ...) SAME_AS(openat);
int open64(const char* path, int flags, ...) SAME_AS(open);
int creat64(const char* path, mode_t mode) SAME_AS(creat);

FILE* fopen(const char* path, const char* mode) {
  FILE* stream = nullptr;
  observed_open(absolute(AT_FDCWD, path), flags_of(mode), [&] {
    stream = REAL(fopen)(path, mode);
    return stream == nullptr ? -1 : 0;
  });
  return stream;
}
FILE* fopen64(const char* path, const char* mode) SAME_AS(fopen);

ssize_t write(int descriptor, const void* data, size_t size) {
  return observed({"write", path_of(descriptor), "", -1, data, &size, descriptor},
                  [&] { return REAL(write)(descriptor, data, size); });
}
ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  return observed({"write", path_of(descriptor), "", offset, data, &size, descriptor},
                  [&] { return REAL(pwrite)(descriptor, data, size, offset); });
}
ssize_t pwrite64(int descriptor, const void* data, size_t size, off64_t offset) SAME_AS(pwrite);
ssize_t writev(int descriptor, const struct iovec* parts, int count) {
  std::string bytes;
  for (const iovec* part = parts; part != parts + count; ++part) {
    bytes.append(static_cast<const char*>(part->iov_base), part->iov_len);
  }
  return write(descriptor, bytes.data(), bytes.size());
}
// What a stream holds back goes past write(): streams on the folder hold nothing back.
size_t fwrite(const void* data, size_t size, size_t count, FILE* stream) {
  const int descriptor = ::fileno(stream);
  if (!is_below(path_of(descriptor), settings().folder)) return REAL(fwrite)(data, size, count, stream);
  for (std::size_t done = 0; done < size * count;) {
    const ssize_t written = write(descriptor, static_cast<const char*>(data) + done, size * count - done);
    if (written < 0) return done / size;
    done += static_cast<std::size_t>(written);
  }
  return count;
}

int fsync(int descriptor) {
  return observed({"fsync", path_of(descriptor)}, [&] { return REAL(fsync)(descriptor); });
}
int fdatasync(int descriptor) {
  return observed({"fsync", path_of(descriptor)}, [&] { return REAL(fdatasync)(descriptor); });
}
int ftruncate(int descriptor, off_t length) noexcept {
  return observed({"truncate", path_of(descriptor), "", length}, [&] { return REAL(ftruncate)(descriptor, length); });
}
int ftruncate64(int descriptor, off64_t length) noexcept SAME_AS(ftruncate);
int truncate(const char* path, off_t length) noexcept {
  return observed({"truncate", absolute(AT_FDCWD, path), "", length}, [&] { return REAL(truncate)(path, length); });
}
int truncate64(const char* path, off64_t length) noexcept SAME_AS(truncate);

int renameat2(int folder, const char* path, int target_folder, const char* target, unsigned flags) noexcept {
  return observed({"rename", absolute(folder, path), absolute(target_folder, target)},
                  [&] { return REAL(renameat2)(folder, path, target_folder, target, flags); });
}
int renameat(int folder, const char* path, int target_folder, const char* target) noexcept {
  return renameat2(folder, path, target_folder, target, 0);
}
int rename(const char* path, const char* target) noexcept { return renameat2(AT_FDCWD, path, AT_FDCWD, target, 0); }

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return observed({"mkdir", absolute(folder, path)}, [&] { return REAL(mkdirat)(folder, path, mode); });
}
int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int folder, const char* path, int flags) noexcept {
  return observed({"unlink", absolute(folder, path)}, [&] { return REAL(unlinkat)(folder, path, flags); });
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept { return unlink(path) == 0 || (errno == EISDIR && rmdir(path) == 0) ? 0 : -1; }

}  // extern "C"
