// Takes the JSON header of a safetensors file apart, event by event.
//
// Not for: bytes and layout, which safetensors.cpp checks; it is the only user. Thread rule: one parse, one object.
#pragma once

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/safetensors.h"

namespace tempo::model {

inline constexpr const char* kMetadataKey = "__metadata__";
inline constexpr std::size_t kMaxDimensions = 64;    // ATen's operators stop there (dim_bitset_size)
inline constexpr std::size_t kMaxQuotedBytes = 100;  // of a file's own text in a message: a name may be megabytes

/// A file's own text for a message.
inline std::string excerpt(std::string_view text) {
  const bool cut = text.size() > kMaxQuotedBytes;
  return c10::str("'", std::string(text.substr(0, kMaxQuotedBytes)), cut ? "...'" : "'");
}

/// Takes the header apart while it is parsed. Anything that does not belong stops the parser at once, so that neither deep
/// nesting nor a long list of unknown things costs memory. A doubled key would otherwise be lost without a word.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t value) override { return refuse(c10::str("the number ", value)); }
  bool number_float(number_float_t, const string_t& text) override { return refuse("the number " + excerpt(text)); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kNumbers) return refuse(c10::str("the number ", value));
    if (numbers_.size() == kMaxDimensions) return stop("more than ", kMaxDimensions, " numbers");
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      metadata[field_] = value;
      return true;
    }
    if (level_ != Level::kTensor || field_ != "dtype") return refuse("the text " + excerpt(value));
    info_.dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::kOutside) {
      level_ = Level::kTop;
    } else if (level_ == Level::kTop) {
      level_ = name_ == kMetadataKey ? Level::kMetadata : Level::kTensor;
      info_ = {};
      has_dtype_ = has_shape_ = has_offsets_ = false;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool key(string_t& key) override {
    if (level_ == Level::kTop) {
      name_ = key;
      field_.clear();
      const bool is_doubled = key == kMetadataKey ? std::exchange(has_metadata_, true) : tensors.count(key) != 0;
      return !is_doubled || stop("stands twice in the header");
    }
    field_ = key;
    if (level_ == Level::kMetadata) return metadata.count(key) == 0 || stop("stands twice");
    bool* seen = key == "dtype"          ? &has_dtype_
                 : key == "shape"        ? &has_shape_
                 : key == "data_offsets" ? &has_offsets_
                                         : nullptr;
    if (seen == nullptr) return stop("is not one of dtype, shape, data_offsets");
    return !std::exchange(*seen, true) || stop("stands twice");
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || field_ == "dtype") return refuse("a list");
    level_ = Level::kNumbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::kTensor;
    if (field_ == "data_offsets") {
      if (numbers_.size() != 2) return stop("must be [begin, end]");
      info_.begin = numbers_[0];
      info_.end = numbers_[1];
      return true;
    }
    for (const std::uint64_t size : numbers_) {
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return stop("dimension ", size, " is too large");
      info_.shape.push_back(static_cast<std::int64_t>(size));
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor) {
      field_.clear();
      if (!has_dtype_ || !has_shape_ || !has_offsets_) return stop("lacks one of dtype, shape, data_offsets");
      tensors.emplace(name_, std::move(info_));
    }
    level_ = level_ == Level::kTop ? Level::kOutside : Level::kTop;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& reason) override {
    error = c10::str("the header is not valid JSON at byte ", position, ": ", excerpt(reason.what()));
    return false;
  }

 private:
  enum class Level { kOutside, kTop, kMetadata, kTensor, kNumbers };

  template <typename... Parts>
  bool stop(const Parts&... parts) {
    error = c10::str("header entry ", excerpt(name_), field_.empty() ? std::string() : ", " + excerpt(field_), ": ",
                     parts...);
    return false;
  }
  bool refuse(const std::string& what) {
    if (level_ != Level::kOutside) return stop(what, " is not allowed here");
    error = "the header is not a JSON object";
    return false;
  }

  Level level_ = Level::kOutside;
  std::string name_;   ///< key at the top
  std::string field_;  ///< key below it
  TensorInfo info_;
  std::vector<std::uint64_t> numbers_;
  bool has_metadata_ = false;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

}  // namespace tempo::model
