#include <algorithm>
#include <string>
#include <vector>

#include "train/config_fields.h"
#include "train/run_config.h"

// What --help says about the keys of a configuration.

namespace tempo::train {
namespace {

/// The default of `field` as help shows it, or that it has none.
std::string default_text(const Field& field) {
  if (!field.example.empty()) return "required";
  return field.fallback.empty() ? "not set" : "default " + field.fallback;
}

/// `text` in lines of at most `width` columns, each after `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string result;
  std::string line;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, end - start);
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      result += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    start = end + 1;
  }
  return result + std::string(indent, ' ') + line + "\n";
}

}  // namespace

std::string describe_keys(const std::vector<std::string>& sections) {
  constexpr std::size_t kWidth = 100;
  constexpr std::size_t kKeyIndent = 2;
  constexpr std::size_t kSentenceIndent = 6;
  std::string text;
  for (const Section& section : config_sections()) {
    if (!sections.empty() && std::find(sections.begin(), sections.end(), section.name) == sections.end()) continue;
    text += (text.empty() ? "" : "\n") + wrapped(section.name + ": " + section.sentence, 0, kWidth);
    for (const Field& field : config_fields()) {
      if (section_of(field.key) != section.name) continue;
      text += wrapped(field.key + ": " + field.allowed + " (" + default_text(field) + ")", kKeyIndent, kWidth);
      text += wrapped(field.sentence, kSentenceIndent, kWidth);
    }
  }
  return text;
}

}  // namespace tempo::train
