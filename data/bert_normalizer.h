// BERT's text cleaning, a character or a word at a time: which characters separate words, which vanish, and what the
// others become. Equal to BertNormalizer and BertPreTokenizer of Hugging Face `tokenizers` (unicode_classes.h).
//
// Not for: pieces and ids (wordpiece.cpp). Thread rule: immutable, may be read from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tempo::data {

/// What a character does to the word it stands in.
enum class CharacterRole : std::uint8_t {
  kLetter,     ///< belongs to the word
  kSpace,      ///< ends it
  kOwnWord,    ///< ends it and is a word by itself: punctuation, an ideograph
  kDropped,    ///< vanishes; what stands around it joins
  kMultibyte,  ///< (of a byte) the first of several: ask for the whole character
};

class BertNormalizer {
 public:
  /// `lowercase` also decomposes characters and strips accents, as `strip_accents = lowercase` does in `tokenizers`.
  explicit BertNormalizer(bool lowercase);

  CharacterRole role_of_byte(unsigned char byte) const { return byte_roles_[byte]; }
  CharacterRole role(char32_t code_point) const { return entries_[code_point].role; }

  /// Sets `word` to the normal form of `raw`, in UTF-8, and returns how many characters that has. `raw` has letters and
  /// dropped characters only, or is one character that is a word by itself; bytes that are not UTF-8 are dropped. Stops
  /// once there are more than `max_characters`: the time is linear in `raw`, the memory is bounded.
  std::size_t normalize(std::string_view raw, std::size_t max_characters, std::string& word) const;

 private:
  /// How a character takes part in canonical ordering (The Unicode Standard, 3.11, D109), after accents are stripped.
  enum class Ordering : std::uint8_t {
    kStarter,  ///< marks do not move past it, even if it vanishes
    kPassed,   ///< vanishes, and marks around it are sorted together
    kSorted,   ///< a mark that survives; `index` is its rank
  };
  struct Entry {
    CharacterRole role = CharacterRole::kLetter;
    Ordering ordering = Ordering::kStarter;
    std::uint16_t index = 0;  ///< into replacements_, 0: itself; for Ordering::kSorted the rank
  };
  struct Replacement {
    std::size_t count = 0;
    std::array<char32_t, 3> characters{};
  };

  void add_classes(bool lowercase);
  void add_replacements();
  Replacement replacement_of(char32_t code_point) const;
  std::size_t normalize_in_order(std::string_view raw, std::size_t max_characters, std::string& word) const;

  bool lowercase_;
  std::vector<Entry> entries_;  ///< of every code point
  std::vector<Replacement> replacements_;
  std::array<CharacterRole, 256> byte_roles_{};
};

}  // namespace tempo::data
