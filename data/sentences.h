// Cuts text into sentences, by Unicode's rules (ICU) or by lines.
//
// Not for: documents (corpus.h). Thread rule: a splitter belongs to one thread; functions may run anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tempo::data {

enum class SentenceRule {
  kIcu,    ///< Unicode Standard Annex 29 with ICU's list of English abbreviations ("Mr." ends no sentence)
  kLines,  ///< one sentence a line
};

class SentenceSplitter {
 public:
  explicit SentenceSplitter(SentenceRule rule);
  ~SentenceSplitter();

  /// Calls accept(sentence) for every sentence of `text`, in order; sentences of white space only are left out. `text` is
  /// valid UTF-8. By ICU's rules a line end is a space, and a blank line ends a sentence.
  void split(std::string_view text, const std::function<void(std::string_view)>& accept);

 private:
  struct Icu;
  std::unique_ptr<Icu> icu_;  ///< null: by lines
};

/// Replaces every maximal part of `text` that is not UTF-8 by U+FFFD. Returns how many there were.
std::int64_t repair_utf8(std::string& text);

/// The version of ICU that is loaded: "72.1".
std::string icu_version();

}  // namespace tempo::data
