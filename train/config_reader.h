// Reads configuration text: a YAML file of sections with keys, and k=v overrides. Every value keeps the place where it
// was written, so that all later errors can name it; scalars are read strictly.
//
// Not for: which keys there are (config_fields.h). Thread rule: values; functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/bounds.h"

namespace tempo::train {

/// One key with its value as written.
struct WrittenValue {
  enum class Kind { kEmpty, kScalar, kList, kMap };

  std::string key;        ///< dotted path: "optimizer.lr"
  std::string key_place;  ///< start of messages about the key: "run.yaml:7:3: optimizer.lr", "override optimizer.lr=1"
  std::string place;      ///< start of messages about the value
  std::filesystem::path folder;  ///< absolute; relative paths in the value start here
  bool is_override = false;
  Kind kind = Kind::kEmpty;
  std::vector<std::string> texts;  ///< one for a scalar, any number for a list
};

/// The values of a YAML file in its order. A file is a map of sections, a section a map of keys; a key outside a
/// section is returned as it stands, for the caller to refuse.
/// Throws c10::ValueError "FILE:LINE:COLUMN: ..." when there is no such file, it is no YAML of this shape or a key is
/// doubled.
std::vector<WrittenValue> read_yaml_file(const std::filesystem::path& file);

/// The value of "section.key=value". The value is taken as it stands, or read as YAML when it begins with [ or a quote.
WrittenValue read_override(const std::string& text);

/// Throws c10::ValueError "PLACE: TEXT", where PLACE is that of a WrittenValue.
[[noreturn]] void refuse(const std::string& place, const std::string& text);

/// The value as a number within `bounds`. The whole text must be the number: base 10, no sign that wraps, no infinity,
/// no NaN. 1e3 is a whole number, 10.5 is not. T is std::int64_t, std::uint64_t or double.
template <typename T>
T read_number(const WrittenValue& value, const model::Bounds<T>& bounds);

/// Numbers of a list that has exactly `count` of them.
std::vector<double> read_numbers(const WrittenValue& value, std::size_t count, const model::Bounds<double>& bounds);

/// true or false, in YAML 1.2's spellings.
bool read_boolean(const WrittenValue& value);

/// One of `allowed`.
std::string read_choice(const WrittenValue& value, const std::vector<std::string>& allowed);

/// A path, made absolute against the folder of the value and without "." and "..".
std::filesystem::path read_path(const WrittenValue& value);

/// One path or a list of them; at least one.
std::vector<std::filesystem::path> read_paths(const WrittenValue& value);

/// The section that a dotted path begins with: "optimizer" of "optimizer.lr".
std::string section_of(const std::string& key);

/// Why `key` is unknown, with the section that it belongs to or the nearest key of `known_keys` (all dotted paths).
std::string unknown_key_text(const std::string& key, const std::vector<std::string>& known_keys);

}  // namespace tempo::train
