// What counts as a blank line of text, wherever lines are read.
//
// Not for: Unicode's white space (bert_normalizer.h). Thread rule: a function without state.
#pragma once

#include <string_view>

namespace tempo::data {

/// True for text of spaces, tabs, carriage returns, form feeds and vertical tabs only.
inline bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\f\v") == std::string_view::npos; }

}  // namespace tempo::data
