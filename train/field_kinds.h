// The kinds of fields of a configuration: each function declares one, with how it is read, checked and printed.
//
// Not for: which fields there are (config_fields.cpp, prepare_fields.cpp). Thread rule: functions without state.
#pragma once

#include <c10/util/StringUtil.h>

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/bounds.h"
#include "train/config_fields.h"

namespace tempo::train {

using model::Bounds;

inline constexpr std::int64_t kMaxThreads = 4096;

/// Where a value lives in the tree: at(&RunConfig::train, &TrainConfig::steps)(config) is config.train.steps.
template <typename Tree, typename Branch, typename T>
auto at(Branch Tree::*branch, T Branch::*leaf) {
  return [ branch, leaf ](auto& config) -> auto& { return config.*branch.*leaf; };
}

template <typename Tree, typename T>
auto at(T Tree::*leaf) {
  return [leaf](auto& config) -> auto& { return config.*leaf; };
}

inline std::string text_of(double value) { return model::number_text(value); }
inline std::string text_of(std::int64_t value) { return std::to_string(value); }
inline std::string text_of(std::uint64_t value) { return std::to_string(value); }

/// JSON's quotes and escapes are YAML's too.
inline std::string quoted_path(const std::filesystem::path& path) { return nlohmann::json(path.string()).dump(); }

/// Completes a field whose value lives in the tree: how it is printed, and that its default is what a fresh tree
/// prints.
inline Field stored(Field field, std::function<std::string(const Draft&)> print) {
  field.print = std::move(print);
  field.fallback = field.print(Draft{});
  return field;
}

/// A field with its words, not yet read or printed.
inline Field named(std::string key, std::string allowed, std::string sentence) {
  Field field;
  field.key = std::move(key);
  field.allowed = std::move(allowed);
  field.sentence = std::move(sentence);
  return field;
}

template <typename T, typename At>
Field number(std::string key, At where, Bounds<T> bounds, std::string sentence) {
  Field field = named(std::move(key), (std::is_floating_point_v<T> ? "number, " : "whole number, ") + bounds.text(),
                      std::move(sentence));
  field.read = [=](Draft& draft, const WrittenValue& value) { where(draft) = read_number(value, bounds); };
  return stored(std::move(field), [=](const Draft& draft) { return text_of(where(draft)); });
}

template <typename At>
Field boolean(std::string key, At where, std::string sentence) {
  Field field = named(std::move(key), "true | false", std::move(sentence));
  field.read = [=](Draft& draft, const WrittenValue& value) { where(draft) = read_boolean(value); };
  return stored(std::move(field), [=](const Draft& draft) { return std::string(where(draft) ? "true" : "false"); });
}

template <typename At>
Field choice(std::string key, At where, const std::vector<std::string>& names, std::string sentence) {
  Field field = named(std::move(key), c10::Join(" | ", names), std::move(sentence));
  field.read = [=](Draft& draft, const WrittenValue& value) { where(draft) = read_choice(value, names); };
  return stored(std::move(field), [=](const Draft& draft) { return where(draft); });
}

/// A choice that is stored as an enumerator.
template <typename Enum, typename At>
Field choice(std::string key, At where, const std::vector<std::pair<std::string, Enum>>& names, std::string sentence) {
  std::vector<std::string> words;
  words.reserve(names.size());
  for (const auto& entry : names) words.push_back(entry.first);
  Field field = named(std::move(key), c10::Join(" | ", words), std::move(sentence));
  field.read = [=](Draft& draft, const WrittenValue& value) {
    const std::string word = read_choice(value, words);
    for (const auto& [name, enumerator] : names) {
      if (name == word) where(draft) = enumerator;
    }
  };
  return stored(std::move(field), [=](const Draft& draft) {
    for (const auto& [name, enumerator] : names) {
      if (enumerator == where(draft)) return name;
    }
    return std::string();
  });
}

/// A field without which `by` cannot start; `example` is a line of YAML that sets it.
inline Field required(Field field, std::string example, Command by = Command::kTrain) {
  field.fallback.clear();
  field.example = std::move(example);
  field.required_by = {by};
  return field;
}

/// One path or several; not printed where there is none.
template <typename At>
Field path_list(std::string key, At where, std::string sentence) {
  Field field = named(std::move(key), "path or list of paths", std::move(sentence));
  field.read = [=](Draft& draft, const WrittenValue& value) {
    where(draft).clear();
    for (const auto& path : read_paths(value)) where(draft).push_back(path.string());
  };
  return stored(std::move(field), [=](const Draft& draft) {
    std::string text;
    for (const std::string& path : where(draft)) text += "\n    - " + quoted_path(path);
    return text;
  });
}

/// A path; not printed where it is not set.
template <typename At>
Field path(std::string key, At where, std::string sentence) {
  Field field = named(std::move(key), "path", std::move(sentence));
  field.read = [=](Draft& draft, const WrittenValue& value) { where(draft) = read_path(value); };
  return stored(std::move(field),
                [=](const Draft& draft) { return where(draft).empty() ? std::string() : quoted_path(where(draft)); });
}

}  // namespace tempo::train
