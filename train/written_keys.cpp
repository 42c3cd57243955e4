#include "train/written_keys.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "train/config_fields.h"

namespace tempo::train {
namespace {

constexpr const char* kLayersPreset = "layers.preset";

void check_known(const WrittenValue& value) {
  std::vector<std::string> known;
  for (const Field& field : config_fields()) known.push_back(field.key);
  if (std::find(known.begin(), known.end(), value.key) != known.end()) return;
  refuse(value.key_place, unknown_key_text(value.key, known));
}

}  // namespace

WrittenKeys::WrittenKeys(const std::filesystem::path& file, const std::vector<std::string>& overrides)
    : file_(file.string()) {
  for (WrittenValue& value : read_yaml_file(file)) add(std::move(value));
  for (const std::string& text : overrides) add(read_override(text));
}

const WrittenValue* WrittenKeys::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool WrittenKeys::is_meant(const std::string& key) const {
  const WrittenValue* value = find(key);
  const bool has_override = std::any_of(values_.begin(), values_.end(), [](const auto& entry) {
    return entry.second.is_override && section_of(entry.first) == "layers";
  });
  return value != nullptr && (value->is_override || !has_override);
}

std::string WrittenKeys::place(const std::string& key) const {
  const WrittenValue* value = find(key);
  return value != nullptr ? value->place : file_ + ": " + key;
}

void WrittenKeys::add(WrittenValue value) {
  check_known(value);
  if (value.key == kWarmupSteps) add_alternative(value, kWarmupRatio);
  if (value.key == kWarmupRatio) add_alternative(value, kWarmupSteps);
  if (value.is_override && value.key == kLayersPreset) forget_file_layers();
  const auto earlier = values_.find(value.key);
  if (earlier != values_.end() && earlier->second.is_override) {
    refuse(value.place, "is given twice; the first is " + earlier->second.place);
  }
  values_.insert_or_assign(value.key, value);
}

/// Two keys for one number: an override replaces the file's; otherwise only one may be there.
void WrittenKeys::add_alternative(const WrittenValue& value, const char* other) {
  const auto found = values_.find(other);
  if (found == values_.end()) return;
  if (found->second.is_override == value.is_override) {
    refuse(value.key_place, std::string("cannot be given together with ") + other + " (" + found->second.place + ")");
  }
  values_.erase(found);
}

/// A preset in an override is meant as a whole: the file's single keys would undo it.
void WrittenKeys::forget_file_layers() {
  for (auto entry = values_.begin(); entry != values_.end();) {
    const bool goes = section_of(entry->first) == "layers" && !entry->second.is_override;
    entry = goes ? values_.erase(entry) : std::next(entry);
  }
}

}  // namespace tempo::train
