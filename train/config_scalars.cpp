// Strict reading of single values (declared in config_reader.h). yaml-cpp's own conversions accept too much: -1 as an
// unsigned number, 010 as 8, the 1 of 1e3.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "train/config_reader.h"

namespace tempo::train {
namespace {

using Kind = WrittenValue::Kind;

/// Whole numbers up to this are exact as double.
constexpr double kMaxExactWhole = 9007199254740992.0;  // 2^53

const std::string& single_text(const WrittenValue& value, const std::string& wanted) {
  switch (value.kind) {
    case Kind::kScalar:
      return value.texts.front();
    case Kind::kEmpty:
      refuse(value.place, "has no value; needed: " + wanted);
    case Kind::kList:
      refuse(value.place, "is a list; needed: " + wanted);
    case Kind::kMap:
      break;
  }
  refuse(value.place, "is a map; needed: " + wanted);
}

enum class Parsed { kNumber, kTooLarge, kNoNumber };

template <typename T>
Parsed parse_whole_text(const std::string& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return Parsed::kNoNumber;
  if (error == std::errc::result_out_of_range) return Parsed::kTooLarge;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(number)) return Parsed::kNoNumber;
  }
  return Parsed::kNumber;
}

template <typename T>
Parsed parse_number(const std::string& text, T& number) {
  const Parsed parsed = parse_whole_text(text, number);
  if constexpr (std::is_floating_point_v<T>) {
    return parsed;
  } else {
    double real = 0;
    if (parsed != Parsed::kNoNumber || parse_whole_text(text, real) != Parsed::kNumber) return parsed;
    if (real != std::floor(real)) return Parsed::kNoNumber;
    // A negative one is below every bound of an unsigned T, which cannot hold it.
    if (std::abs(real) > kMaxExactWhole || (real < 0 && std::is_unsigned_v<T>)) return Parsed::kTooLarge;
    number = static_cast<T>(real);
    return Parsed::kNumber;
  }
}

template <typename T>
T number_in(const std::string& text, const model::Bounds<T>& bounds, const std::string& place) {
  T number{};
  const Parsed parsed = parse_number(text, number);
  const std::string allowed = "; allowed: " + bounds.text();
  if (parsed == Parsed::kNoNumber) {
    refuse(place, "\"" + text + "\" is not a " + (std::is_floating_point_v<T> ? "number" : "whole number") + allowed);
  }
  if (parsed == Parsed::kTooLarge || !bounds.contains(number)) refuse(place, text + " is out of range" + allowed);
  return number;
}

std::filesystem::path absolute_path(const std::string& text, const WrittenValue& value) {
  if (text.empty()) refuse(value.place, "the path is empty");
  if (text.front() == '~') refuse(value.place, "\"" + text + "\": ~ is not replaced here; write the whole path");
  std::filesystem::path path = (value.folder / text).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // "runs/" is "runs"
}

}  // namespace

template <typename T>
T read_number(const WrittenValue& value, const model::Bounds<T>& bounds) {
  const char* type = std::is_floating_point_v<T> ? "a number, " : "a whole number, ";
  return number_in(single_text(value, type + bounds.text()), bounds, value.place);
}

template std::int64_t read_number(const WrittenValue& value, const model::Bounds<std::int64_t>& bounds);
template std::uint64_t read_number(const WrittenValue& value, const model::Bounds<std::uint64_t>& bounds);
template double read_number(const WrittenValue& value, const model::Bounds<double>& bounds);

std::vector<double> read_numbers(const WrittenValue& value, std::size_t count, const model::Bounds<double>& bounds) {
  if (value.kind != Kind::kList || value.texts.size() != count) {
    refuse(value.place, "must be a list of " + std::to_string(count) + " numbers, each " + bounds.text());
  }
  std::vector<double> numbers;
  for (const std::string& text : value.texts) numbers.push_back(number_in(text, bounds, value.place));
  return numbers;
}

bool read_boolean(const WrittenValue& value) {
  const std::string& text = single_text(value, "true or false");
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  refuse(value.place, "\"" + text + "\" is neither true nor false");
}

std::string read_choice(const WrittenValue& value, const std::vector<std::string>& allowed) {
  const std::string names = c10::Join(", ", allowed);
  const std::string& text = single_text(value, "one of " + names);
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    refuse(value.place, "\"" + text + "\" is not known; allowed: " + names);
  }
  return text;
}

std::filesystem::path read_path(const WrittenValue& value) {
  return absolute_path(single_text(value, "a path"), value);
}

std::vector<std::filesystem::path> read_paths(const WrittenValue& value) {
  if (value.kind != Kind::kList) return {read_path(value)};
  if (value.texts.empty()) refuse(value.place, "the list is empty; needed: a path, or a list of paths");
  std::vector<std::filesystem::path> paths;
  for (const std::string& text : value.texts) paths.push_back(absolute_path(text, value));
  return paths;
}

}  // namespace tempo::train
