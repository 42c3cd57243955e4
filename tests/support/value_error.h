// The text of the c10::ValueError that a call throws, without the backtrace.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace tempo::testing {

template <typename Call>
std::string value_error_of(const Call& call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "(no c10::ValueError was thrown)";
}

}  // namespace tempo::testing
