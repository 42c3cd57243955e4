// One character of UTF-8 at a time.
//
// Not for: what characters mean (bert_normalizer.h). Thread rule: functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tempo::data {

/// A character, or a maximal part of bytes that cannot be one (The Unicode Standard, 3.9, "U+FFFD Substitution").
struct Utf8Character {
  char32_t code_point = 0xFFFD;
  std::size_t num_bytes = 1;
  bool is_valid = false;
};

/// Reads the character at `text`, which has to lie before `end`. Bytes that are not UTF-8 give U+FFFD.
inline Utf8Character read_utf8(const char* text, const char* end) {
  const auto byte = [text](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t num_bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's bounds exclude overlong forms, surrogates and what lies beyond U+10FFFF (table 3-7 there).
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7F >> num_bytes);
  for (std::size_t index = 1; index < num_bytes; ++index) {
    if (text + index == end || byte(index) < low || byte(index) > high) return {0xFFFD, index, false};
    code_point = code_point << 6 | (byte(index) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code_point, num_bytes, true};
}

/// Appends a character, which has to be a Unicode scalar value.
inline void append_utf8(char32_t code_point, std::string& text) {
  const auto trail = [&](int shift) { text += static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    trail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    trail(6);
    trail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    trail(12);
    trail(6);
    trail(0);
  }
}

}  // namespace tempo::data
