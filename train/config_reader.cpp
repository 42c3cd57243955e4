#include "train/config_reader.h"

#include <c10/util/Exception.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

namespace tempo::train {
namespace {

using Kind = WrittenValue::Kind;

constexpr const char* kShape = "a configuration is a map of sections, for example\ntrain:\n  steps: 1000";

std::string place_of(const std::string& name, const YAML::Mark& mark) {
  if (mark.is_null()) return name;
  return name + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

/// The 0-based `line` of a text begins with white space that holds a tab.
bool is_indented_with_tab(const std::string& text, int line) {
  std::size_t start = 0;
  for (; line > 0; --line) {
    start = text.find('\n', start);
    if (start == std::string::npos) return false;
    ++start;
  }
  const std::size_t tab = text.find_first_not_of(' ', start);
  return tab != std::string::npos && text[tab] == '\t';
}

/// The only document of `text`; `place` begins the message of every error, given where in the text it is.
YAML::Node parse_yaml(const std::string& text, const std::function<std::string(const YAML::Mark&)>& place) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(text);
  } catch (const YAML::Exception& error) {
    std::string why = "is not YAML: " + error.msg;
    if (!error.mark.is_null() && is_indented_with_tab(text, error.mark.line))
      why += " (indent with spaces, not with tabs)";
    if (error.msg == YAML::ErrorMsg::UNKNOWN_ANCHOR) why += " (put a text that begins with * into quotes)";
    refuse(place(error.mark), why);
  }
  if (documents.size() > 1) refuse(place(documents[1].Mark()), "a second YAML document; one is allowed");
  return documents.empty() ? YAML::Node() : documents.front();
}

std::string scalar_text(const YAML::Node& node, const std::string& place) {
  if (node.IsScalar()) return node.Scalar();
  refuse(place, node.IsNull() ? "an entry of the list is empty" : "the entries of the list must be single values");
}

void take_value(const YAML::Node& node, WrittenValue& value) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      value.kind = Kind::kScalar;
      value.texts = {node.Scalar()};
      break;
    case YAML::NodeType::Sequence:
      value.kind = Kind::kList;
      for (const YAML::Node& entry : node) value.texts.push_back(scalar_text(entry, value.place));
      break;
    case YAML::NodeType::Map:
      value.kind = Kind::kMap;
      break;
    case YAML::NodeType::Null:
    case YAML::NodeType::Undefined:
      value.kind = Kind::kEmpty;
      break;
  }
}

/// Walks the two levels of a file.
class FileReader {
 public:
  FileReader(const std::filesystem::path& file, std::filesystem::path folder)
      : name_(file.string()), folder_(std::move(folder)) {}

  std::vector<WrittenValue> read(const std::string& text) {
    const YAML::Node root = parse_yaml(text, [this](const YAML::Mark& mark) { return place_of(name_, mark); });
    if (!root.IsMap()) refuse(place_of(name_, root.IsDefined() && !root.IsNull() ? root.Mark() : YAML::Mark()), kShape);
    for (const auto& section : root) {
      const std::string key = add_key("", section.first);
      if (!section.second.IsMap() || section.second.size() == 0) {
        add_value(key, section);
        continue;
      }
      for (const auto& entry : section.second) add_value(add_key(key + ".", entry.first), entry);
    }
    return std::move(values_);
  }

 private:
  using Entry = YAML::detail::iterator_value;

  std::string add_key(const std::string& prefix, const YAML::Node& node) {
    const std::string place = place_of(name_, node.Mark());
    if (!node.IsScalar()) refuse(place, "a key must be a plain name");
    std::string key = prefix + node.Scalar();
    const auto [first, is_new] = lines_.emplace(key, node.Mark().line + 1);
    if (!is_new) refuse(place + ": " + key, "is given twice; the first is in line " + std::to_string(first->second));
    return key;
  }

  void add_value(const std::string& key, const Entry& entry) {
    WrittenValue value;
    value.key = key;
    value.key_place = place_of(name_, entry.first.Mark()) + ": " + key;
    // The parser places a value that is missing wherever it noticed, often in the next line.
    value.place = entry.second.IsNull() ? value.key_place : place_of(name_, entry.second.Mark()) + ": " + key;
    value.folder = folder_;
    take_value(entry.second, value);
    values_.push_back(std::move(value));
  }

  std::string name_;
  std::filesystem::path folder_;
  std::map<std::string, int> lines_;
  std::vector<WrittenValue> values_;
};

/// The fewest insertions, deletions and replacements that turn `from` into `to` (Levenshtein).
std::size_t edit_distance(const std::string& from, const std::string& to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

std::string section_of(const std::string& key) { return key.substr(0, key.find('.')); }

void refuse(const std::string& place, const std::string& text) { TORCH_CHECK_VALUE(false, place, ": ", text); }

std::vector<WrittenValue> read_yaml_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) refuse(file.string(), "no such file");
  if (std::filesystem::is_directory(status)) refuse(file.string(), "is a folder; a YAML file is needed");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) refuse(file.string(), "cannot be read");
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  // Without links, so that a ".." in a path of the file means what the file system makes of it.
  const auto folder = std::filesystem::weakly_canonical(std::filesystem::absolute(file).parent_path());
  return FileReader(file, folder).read(text);
}

WrittenValue read_override(const std::string& text) {
  WrittenValue value;
  value.key_place = value.place = "override " + text;
  value.folder = std::filesystem::current_path();
  value.is_override = true;
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    refuse(value.place, "must be KEY=VALUE, for example train.steps=1000");
  value.key = text.substr(0, equals);
  const std::string written = text.substr(equals + 1);
  if (written.empty() || written == "~" || written == "null") return value;
  // Only these need YAML; a pattern such as *.hdf5 or a path with ": " or " #" would mean something else there.
  const bool is_yaml = written.front() == '[' || written.front() == '"' || written.front() == '\'';
  if (is_yaml) {
    take_value(parse_yaml(written, [&](const YAML::Mark&) { return value.place; }), value);
  } else {
    value.kind = Kind::kScalar;
    value.texts = {written};
  }
  return value;
}

std::string unknown_key_text(const std::string& key, const std::vector<std::string>& known_keys) {
  std::string nearest;
  std::size_t smallest = key.size();
  std::string sections;
  for (const std::string& known : known_keys) {
    if (key == section_of(known)) return "is a section; write its keys below it, for example " + known;
    if (last_part(key) == last_part(known)) sections += (sections.empty() ? "" : " or ") + section_of(known);
    const std::size_t distance = edit_distance(key, known);
    if (distance < smallest) {
      smallest = distance;
      nearest = known;
    }
  }
  const std::string unknown = "unknown key";
  if (!sections.empty()) return unknown + "; " + last_part(key) + " belongs to section " + sections;
  // Past half of its letters a key is no longer a slip of the keyboard.
  return smallest <= key.size() / 2 ? unknown + "; the nearest is " + nearest : unknown;
}

}  // namespace tempo::train
