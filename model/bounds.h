// What a number in a configuration may be, and how numbers are written in configurations and messages.
//
// Not for: reading numbers (train/config_reader.h). Thread rule: values; functions without state.
#pragma once

#include <string>

namespace tempo::model {

/// The values allowed for one number. A highest value that the type ends with means "no upper bound".
template <typename T>
struct Bounds {
  T lowest;
  T highest;
  bool without_lowest = false;   ///< only above `lowest`
  bool without_highest = false;  ///< only below `highest`

  /// NaN is in no bounds.
  bool contains(T value) const {
    return (without_lowest ? value > lowest : value >= lowest) &&
           (without_highest ? value < highest : value <= highest);
  }

  /// For messages and help: "from 1 to 512", "0 or more", "above 0", "at least 0 and below 1".
  std::string text() const;
};

/// The shortest text that reads back as exactly `value`; always with a point where it has an exponent ("1.0e-04"), so
/// that readers of YAML 1.1 see a number too.
std::string number_text(double value);

}  // namespace tempo::model
