#include "data/vocabulary.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "data/sha256.h"
#include "data/utf8.h"

namespace tempo::data {
namespace {

// Ids are int32, -1 is none.
constexpr std::size_t kMaxTokens = std::numeric_limits<std::int32_t>::max();

template <typename... Parts>
[[noreturn]] void fail(const std::filesystem::path& file, const Parts&... parts) {
  C10_THROW_ERROR(ValueError, c10::str(file.string(), parts...));
}

std::string read_bytes(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) fail(file, ": ", error.message());
  if (!std::filesystem::is_regular_file(status)) {
    fail(file, ": is not a regular file; a vocabulary is a vocab.txt with one token a line");
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail(file, ": cannot be opened for reading");
  std::string bytes(std::istreambuf_iterator<char>(stream), {});
  if (stream.bad()) fail(file, ": cannot be read");
  if (bytes.empty()) fail(file, ": is empty; a vocabulary has one token a line");
  return bytes;
}

bool is_utf8(std::string_view text) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const Utf8Character character = read_utf8(at, end);
    if (!character.is_valid) return false;
    at += character.num_bytes;
  }
  return true;
}

/// The lines without their ends. One empty line at the end of the file is none.
std::vector<std::string> split_lines(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view line = bytes.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.emplace_back(line);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

Vocabulary Vocabulary::read(const std::filesystem::path& file) {
  const std::string bytes = read_bytes(file);
  Vocabulary vocabulary;
  vocabulary.sha256_ = sha256_of(bytes);
  if (bytes.compare(0, 3, "\xEF\xBB\xBF") == 0)
    fail(file, ":1: begins with a byte order mark; save it as UTF-8 without");
  vocabulary.tokens_ = split_lines(bytes);
  const std::vector<std::string>& tokens = vocabulary.tokens_;
  if (tokens.size() > kMaxTokens) fail(file, ": has ", tokens.size(), " lines; ids are below ", kMaxTokens);
  vocabulary.ids_.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::size_t line = id + 1;
    if (tokens[id].empty()) fail(file, ":", line, ": is empty; each line has to hold a token");
    if (!is_utf8(tokens[id])) fail(file, ":", line, ": is not UTF-8");
    const auto [first, is_new] = vocabulary.ids_.emplace(tokens[id], static_cast<std::int32_t>(id));
    if (!is_new) {
      fail(file, ":", line, ": token '", tokens[id], "' stands in line ", first->second + 1,
           " already; tokens have to differ");
    }
  }
  const std::array<std::pair<const char*, std::int32_t*>, 5> specials = {{{"[PAD]", &vocabulary.specials_.pad},
                                                                          {"[UNK]", &vocabulary.specials_.unknown},
                                                                          {"[CLS]", &vocabulary.specials_.cls},
                                                                          {"[SEP]", &vocabulary.specials_.sep},
                                                                          {"[MASK]", &vocabulary.specials_.mask}}};
  std::string missing;
  for (const auto& [token, id] : specials) {
    *id = vocabulary.find(token);
    if (*id < 0) missing += std::string(missing.empty() ? "" : " ") + token;
  }
  if (!missing.empty())
    fail(file, ": lacks ", missing, "; [PAD] [UNK] [CLS] [SEP] [MASK] have to be there, each on a line");
  if (vocabulary.specials_.pad != 0) {
    fail(file, ":", vocabulary.specials_.pad + 1, ": [PAD] has to be line 1, because shards pad with 0");
  }
  return vocabulary;
}

std::int32_t Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace tempo::data
