// expand_shards and expand_inputs (declared in run_config.h).
#include <c10/util/Exception.h>
#include <glob.h>

#include <algorithm>
#include <memory>

#include "train/run_config.h"
#include "train/shard_folder.h"

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

bool is_hidden(const fs::path& path) { return path.filename().native().front() == '.'; }

/// What a folder stands for.
struct FolderRule {
  std::vector<std::string> endings;
  bool is_recursive = false;
  std::string excluded;  ///< a name

  bool takes(const fs::directory_entry& entry) const {
    const std::string name = entry.path().filename().string();
    const auto ends_name = [&](const std::string& ending) {
      return name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
    };
    return !is_hidden(entry.path()) && name != excluded && std::any_of(endings.begin(), endings.end(), ends_name) &&
           entry.is_regular_file();
  }

  std::string text() const {
    std::string text;
    for (const std::string& ending : endings) text += (text.empty() ? "*" : ", *") + ending;
    return text;
  }
};

template <typename Iterator>
void append_folder(const std::string& key, const fs::path& folder, const FolderRule& rule,
                   std::vector<fs::path>& files) {
  std::error_code error;
  for (Iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (rule.takes(*entry)) files.push_back(entry->path());
    if constexpr (std::is_same_v<Iterator, fs::recursive_directory_iterator>) {
      if (is_hidden(entry->path())) entry.disable_recursion_pending();
    }
  }
  TORCH_CHECK_VALUE(!error, key, ": ", folder.string(), ": ", error.message());
}

std::vector<fs::path> expand(const std::string& key, const std::vector<std::string>& patterns, const FolderRule& rule) {
  std::vector<fs::path> files;
  for (const std::string& pattern : patterns) {
    const std::size_t before = files.size();
    const std::vector<fs::path> matches = matches_of(key, pattern);
    TORCH_CHECK_VALUE(!matches.empty(), key, ": nothing matches \"", pattern, "\"");
    for (const fs::path& match : matches) {
      std::error_code ignored;
      if (!fs::is_directory(match, ignored)) {
        files.push_back(match);
      } else if (rule.is_recursive) {
        append_folder<fs::recursive_directory_iterator>(key, match, rule, files);
      } else {
        append_folder<fs::directory_iterator>(key, match, rule, files);
      }
    }
    TORCH_CHECK_VALUE(files.size() > before, key, ": \"", pattern, "\" holds none of ", rule.text());
  }
  const auto by_bytes = [](const fs::path& left, const fs::path& right) { return left.native() < right.native(); };
  std::sort(files.begin(), files.end(), by_bytes);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace

std::vector<fs::path> expand_shards(const std::string& key, const std::vector<std::string>& patterns) {
  const FolderRule rule = {{".hdf5", ".h5"}, false, {}};
  std::vector<fs::path> shards = expand(key, patterns, rule);
  for (const fs::path& shard : shards) ShardFolder::check_shard(shard);
  return shards;
}

std::vector<fs::path> expand_inputs(const std::string& key, const std::vector<std::string>& patterns) {
  return expand(key, patterns, {{".txt", ".txt.gz", ".md", ".md.gz", ".rst", ".rst.gz"}, true, "vocab.txt"});
}

}  // namespace tempo::train
