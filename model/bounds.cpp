#include "model/bounds.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tempo::model {
namespace {

constexpr int kNumberTextSize = 32;  // room for every shortest text with an exponent: 24 characters

template <typename T>
std::string text_of(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return number_text(value);
  } else {
    return std::to_string(value);
  }
}

template <typename T>
bool is_unbounded(T highest) {
  return highest == std::numeric_limits<T>::max() || highest == std::numeric_limits<T>::infinity();
}

}  // namespace

std::string number_text(double value) {
  char buffer[kNumberTextSize];
  char* const end = buffer + kNumberTextSize;
  const auto scientific = std::to_chars(buffer, end, value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  const auto fixed = std::to_chars(buffer, end, value, std::chars_format::fixed);
  const bool is_fixed_shorter = fixed.ec == std::errc() && static_cast<std::size_t>(fixed.ptr - buffer) < text.size();
  return is_fixed_shorter ? std::string(buffer, fixed.ptr) : text;
}

template <typename T>
std::string Bounds<T>::text() const {
  const bool unbounded = is_unbounded(highest);
  if (unbounded) return without_lowest ? "above " + text_of(lowest) : text_of(lowest) + " or more";
  if (!without_lowest && !without_highest) return "from " + text_of(lowest) + " to " + text_of(highest);
  return (without_lowest ? "above " : "at least ") + text_of(lowest) + " and " +
         (without_highest ? "below " : "at most ") + text_of(highest);
}

template struct Bounds<std::int64_t>;
template struct Bounds<std::uint64_t>;
template struct Bounds<double>;

}  // namespace tempo::model
