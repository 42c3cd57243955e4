// expand_shards (declared in run_config.h).
#include <c10/util/Exception.h>
#include <glob.h>

#include <algorithm>
#include <memory>

#include "train/run_config.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

/// Only * and ? are wildcards here: what glob(3) knows besides stands for itself.
std::string with_escapes(const std::string& pattern) {
  std::string text;
  for (const char c : pattern) {
    if (c == '[' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

std::vector<fs::path> matches_of(const std::string& key, const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(with_escapes(pattern).c_str(), 0, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, ::globfree);
  TORCH_CHECK(status == 0 || status == GLOB_NOMATCH, key, ": \"", pattern, "\" cannot be expanded");
  return status == 0 ? std::vector<fs::path>(found.gl_pathv, found.gl_pathv + found.gl_pathc) : std::vector<fs::path>();
}

bool is_shard(const fs::directory_entry& entry) {
  const fs::path name = entry.path().filename();
  const bool is_hidden = name.native().front() == '.';
  return !is_hidden && (name.extension() == ".hdf5" || name.extension() == ".h5") && entry.is_regular_file();
}

void append_folder(const std::string& key, const fs::path& folder, std::vector<fs::path>& shards) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_shard(*entry)) shards.push_back(entry->path());
  }
  TORCH_CHECK_VALUE(!error, key, ": ", folder.string(), ": ", error.message());
}

}  // namespace

std::vector<fs::path> expand_shards(const std::string& key, const std::vector<std::string>& patterns) {
  std::vector<fs::path> shards;
  for (const std::string& pattern : patterns) {
    const std::size_t before = shards.size();
    const std::vector<fs::path> matches = matches_of(key, pattern);
    TORCH_CHECK_VALUE(!matches.empty(), key, ": nothing matches \"", pattern, "\"");
    for (const fs::path& match : matches) {
      std::error_code ignored;
      if (fs::is_directory(match, ignored)) {
        append_folder(key, match, shards);
      } else {
        shards.push_back(match);
      }
    }
    TORCH_CHECK_VALUE(shards.size() > before, key, ": \"", pattern, "\" holds no *.hdf5 or *.h5 file");
  }
  const auto by_bytes = [](const fs::path& left, const fs::path& right) { return left.native() < right.native(); };
  std::sort(shards.begin(), shards.end(), by_bytes);
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

}  // namespace tempo::train
