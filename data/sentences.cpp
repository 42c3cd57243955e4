#include "data/sentences.h"

#include <c10/util/Exception.h>
#include <unicode/brkiter.h>
#include <unicode/utext.h>
#include <unicode/uversion.h>

#include <algorithm>
#include <cstring>

#include "data/blank_line.h"
#include "data/utf8.h"

namespace tempo::data {
namespace {

// Abbreviations of English; the rules themselves hold for all languages.
constexpr const char* kLocale = "en@ss=standard";

/// Calls accept(line) for every line, without its end.
template <typename Accept>
void for_each_line(std::string_view text, const Accept& accept) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    accept(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The number of bytes at the start of `text` that are plain ASCII, in steps of 8.
std::size_t ascii_prefix(const char* text, std::size_t size) {
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text + at, 8);
    if ((word & 0x8080808080808080) != 0) break;
  }
  return at;
}

}  // namespace

struct SentenceSplitter::Icu {
  std::unique_ptr<icu::BreakIterator> iterator;
  UText* text = nullptr;
  std::string paragraph;  ///< its lines, joined by spaces

  Icu() {
    UErrorCode status = U_ZERO_ERROR;
    iterator.reset(icu::BreakIterator::createSentenceInstance(icu::Locale(kLocale), status));
    TORCH_CHECK(U_SUCCESS(status), "ICU cannot make a sentence iterator: ", u_errorName(status));
  }
  ~Icu() { utext_close(text); }

  void split_paragraph(const std::function<void(std::string_view)>& accept) {
    if (paragraph.empty()) return;
    UErrorCode status = U_ZERO_ERROR;
    text = utext_openUTF8(text, paragraph.data(), static_cast<std::int64_t>(paragraph.size()), &status);
    iterator->setText(text, status);
    TORCH_CHECK(U_SUCCESS(status), "ICU cannot read a paragraph: ", u_errorName(status));
    std::int32_t begin = iterator->first();
    for (std::int32_t end = iterator->next(); end != icu::BreakIterator::DONE; end = iterator->next()) {
      const std::string_view sentence(paragraph.data() + begin, static_cast<std::size_t>(end - begin));
      if (!is_blank(sentence)) accept(sentence);
      begin = end;
    }
    paragraph.clear();
  }
};

SentenceSplitter::SentenceSplitter(SentenceRule rule)
    : icu_(rule == SentenceRule::kIcu ? std::make_unique<Icu>() : nullptr) {}
SentenceSplitter::~SentenceSplitter() = default;

void SentenceSplitter::split(std::string_view text, const std::function<void(std::string_view)>& accept) {
  if (icu_ == nullptr) {
    for_each_line(text, [&](std::string_view line) {
      if (!is_blank(line)) accept(line);
    });
    return;
  }
  for_each_line(text, [&](std::string_view line) {
    if (is_blank(line)) {
      icu_->split_paragraph(accept);
      return;
    }
    if (line.back() == '\r') line.remove_suffix(1);
    if (!icu_->paragraph.empty()) icu_->paragraph += ' ';
    icu_->paragraph += line;
  });
  icu_->split_paragraph(accept);
}

std::int64_t repair_utf8(std::string& text) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  std::int64_t count = 0;
  std::string repaired;
  const char* copied = begin;  // `repaired` has what lies before
  for (const char* at = begin; at != end;) {
    at += ascii_prefix(at, static_cast<std::size_t>(end - at));
    if (at == end) break;
    const Utf8Character character = read_utf8(at, end);
    if (!character.is_valid) {
      repaired.append(copied, at);
      append_utf8(character.code_point, repaired);
      copied = at + character.num_bytes;
      ++count;
    }
    at += character.num_bytes;
  }
  if (count == 0) return 0;
  repaired.append(copied, end);
  text = std::move(repaired);
  return count;
}

std::string icu_version() {
  UVersionInfo version;
  u_getVersion(version);
  char text[U_MAX_VERSION_STRING_LENGTH];
  u_versionToString(version, text);
  return text;
}

}  // namespace tempo::data
