#include "data/bert_normalizer.h"

#include <iterator>

#include "data/unicode_classes.h"
#include "data/utf8.h"

namespace tempo::data {
namespace {

constexpr std::size_t kNumCodePoints = 0x110000;

// Hangul syllables decompose by arithmetic (The Unicode Standard, 3.12).
constexpr char32_t kFirstSyllable = 0xAC00;
constexpr char32_t kLastSyllable = 0xD7A3;
constexpr char32_t kNumTails = 28;
constexpr char32_t kNumVowels = 21;

CharacterRole role_of_class(unicode::CharacterClass kind, bool lowercase) {
  switch (kind) {
    case unicode::kSpace:
      return CharacterRole::kSpace;
    case unicode::kPunctuation:
    case unicode::kIdeograph:
      return CharacterRole::kOwnWord;
    case unicode::kDropped:
      return CharacterRole::kDropped;
    case unicode::kMark:
    case unicode::kBreakingMark:
      return lowercase ? CharacterRole::kDropped : CharacterRole::kLetter;
    case unicode::kLetter:
    case unicode::kNonStarter:
      break;
  }
  return CharacterRole::kLetter;
}

}  // namespace

BertNormalizer::BertNormalizer(bool lowercase) : lowercase_(lowercase), entries_(kNumCodePoints), replacements_(1) {
  add_classes(lowercase);
  if (lowercase) add_replacements();
  for (std::size_t byte = 0; byte < byte_roles_.size(); ++byte) {
    byte_roles_[byte] = byte < 0x80 ? entries_[byte].role : CharacterRole::kMultibyte;
  }
}

void BertNormalizer::add_classes(bool lowercase) {
  for (const unicode::ClassRange* range = std::begin(unicode::kClassRanges); range != std::end(unicode::kClassRanges);
       ++range) {
    const bool is_last = std::next(range) == std::end(unicode::kClassRanges);
    const std::size_t end = is_last ? kNumCodePoints : std::next(range)->first;
    Entry entry;
    entry.role = role_of_class(range->kind, lowercase);
    const bool is_passed = range->kind == unicode::kDropped || range->kind == unicode::kMark;
    if (lowercase && is_passed) entry.ordering = Ordering::kPassed;
    for (std::size_t code_point = range->first; code_point < end; ++code_point) entries_[code_point] = entry;
  }
}

void BertNormalizer::add_replacements() {
  for (const unicode::MarkRank& of : unicode::kMarkRanks) {
    entries_[of.mark].ordering = Ordering::kSorted;
    entries_[of.mark].index = of.rank;
  }
  const auto add = [this](char32_t from, const Replacement& replacement) {
    Entry& entry = entries_[from];
    entry.index = static_cast<std::uint16_t>(replacements_.size());
    for (std::size_t i = 0; i < replacement.count; ++i) {
      if (entries_[replacement.characters[i]].role == CharacterRole::kOwnWord) entry.role = CharacterRole::kOwnWord;
    }
    replacements_.push_back(replacement);
  };
  for (const unicode::ReplacementRun& run : unicode::kReplacementRuns) {
    for (char32_t from = run.first; from <= run.last; from += run.step) add(from, {1, {run.to + (from - run.first)}});
  }
  for (const unicode::Replacement& of : unicode::kReplacements) {
    const std::size_t count = of.to[2] == 0 ? 2 : 3;
    add(of.from, {count, {of.to[0], of.to[1], of.to[2]}});
  }
}

BertNormalizer::Replacement BertNormalizer::replacement_of(char32_t code_point) const {
  const Entry& entry = entries_[code_point];
  if (entry.index != 0 && entry.ordering != Ordering::kSorted) return replacements_[entry.index];
  if (!lowercase_ || code_point < kFirstSyllable || code_point > kLastSyllable) return {1, {code_point}};
  const char32_t syllable = code_point - kFirstSyllable;
  const char32_t tail = syllable % kNumTails;
  const char32_t lead = 0x1100 + syllable / (kNumTails * kNumVowels);
  const char32_t vowel = 0x1161 + syllable / kNumTails % kNumVowels;
  return {tail == 0 ? std::size_t{2} : std::size_t{3}, {lead, vowel, 0x11A7 + tail}};
}

std::size_t BertNormalizer::normalize(std::string_view raw, std::size_t max_characters, std::string& word) const {
  word.clear();
  std::size_t num_characters = 0;
  const char* const end = raw.data() + raw.size();
  for (const char* at = raw.data(); at != end && num_characters <= max_characters;) {
    const Utf8Character character = read_utf8(at, end);
    at += character.num_bytes;
    const Entry& entry = entries_[character.code_point];
    if (entry.role == CharacterRole::kDropped) continue;
    if (entry.ordering == Ordering::kSorted) return normalize_in_order(raw, max_characters, word);
    const Replacement replacement = replacement_of(character.code_point);
    for (std::size_t i = 0; i < replacement.count; ++i) append_utf8(replacement.characters[i], word);
    num_characters += replacement.count;
  }
  return num_characters;
}

// Some 80 marks that the old tables of `tokenizers` do not know as such survive the stripping of accents and are put
// into canonical order. Insertion moves a mark past no more than max_characters others.
std::size_t BertNormalizer::normalize_in_order(std::string_view raw, std::size_t max_characters,
                                               std::string& word) const {
  std::u32string characters;
  std::size_t first_movable = 0;
  const char* const end = raw.data() + raw.size();
  for (const char* at = raw.data(); at != end && characters.size() <= max_characters;) {
    const Utf8Character character = read_utf8(at, end);
    at += character.num_bytes;
    const Entry& entry = entries_[character.code_point];
    if (entry.role == CharacterRole::kDropped) {
      if (entry.ordering == Ordering::kStarter) first_movable = characters.size();
      continue;
    }
    const Replacement replacement = replacement_of(character.code_point);
    for (std::size_t i = 0; i < replacement.count; ++i) {
      const char32_t added = replacement.characters[i];
      if (entries_[added].ordering != Ordering::kSorted) {
        characters.push_back(added);
        first_movable = characters.size();
        continue;
      }
      std::size_t place = characters.size();
      while (place > first_movable && entries_[characters[place - 1]].index > entries_[added].index) --place;
      characters.insert(place, 1, added);
    }
  }
  word.clear();
  for (const char32_t character : characters) append_utf8(character, word);
  return characters.size();
}

}  // namespace tempo::data
