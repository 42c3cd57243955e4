#include "train/progress_display.h"

#include <langinfo.h>
#include <locale.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>

namespace tempo::train {
namespace {

constexpr int kUsualColumns = 80;              // where a terminal does not say
constexpr int kBarColumns = 20;                // 5 % each
constexpr int kColumnsForABar = 60;            // narrower terminals get words only
constexpr const char* kEraseRight = "\x1b[K";  // ECMA-48 EL: from the cursor to the end of the line

bool is_terminal(int descriptor) {
  const char* term = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && (term == nullptr || std::string(term) != "dumb");
}

/// What the environment asks for; the process's own locale stays "C", which keeps numbers as they are.
bool locale_is_utf8() {
  const locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool is_utf8 = std::string(::nl_langinfo_l(CODESET, locale)) == "UTF-8";
  ::freelocale(locale);
  return is_utf8;
}

int columns_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

/// Errors are of no interest: a terminal that has gone away needs no bar.
void write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) done += static_cast<std::size_t>(written);
  }
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// Columns of UTF-8 text, a column a character.
int width_of(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string cut(const std::string& text, int columns) {
  std::size_t end = 0;
  for (int width = 0; end < text.size(); ++end) {
    if (begins_character(text[end]) && ++width > columns) break;
  }
  return text.substr(0, end);
}

/// The leading fields of `text` (two spaces between) that fit.
std::string fitting_fields(const std::string& text, int columns) {
  if (width_of(text) <= columns) return text;
  std::size_t end = text.rfind("  ");
  while (end != std::string::npos && end > 0 && width_of(text.substr(0, end)) > columns)
    end = text.rfind("  ", end - 1);
  return end == std::string::npos ? std::string() : text.substr(0, end);
}

std::string cells(double share, bool unicode) {
  if (!unicode) {
    const int full = static_cast<int>(share * kBarColumns);
    return "[" + std::string(full, '#') + std::string(kBarColumns - full, '-') + "]";
  }
  static const char* const kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(share * kBarColumns * 8);
  std::string text = "▕";
  for (int cell = 0; cell < eighths / 8; ++cell) text += "█";
  text += kEighths[eighths % 8];
  text += std::string(kBarColumns - (eighths + 7) / 8, ' ');
  return text + "▏";
}

/// Rounded down: 100 % is said when all is done.
int percent(double share) { return static_cast<int>(share * 100 + 1e-9); }  // 0.29 is 29 %

std::string left_text(double seconds) { return std::isfinite(seconds) ? "left " + duration_text(seconds) : ""; }

bool is_console(const spdlog::sinks::sink& sink) {
  return dynamic_cast<const spdlog::sinks::ansicolor_stderr_sink_mt*>(&sink) != nullptr ||
         dynamic_cast<const spdlog::sinks::stderr_sink_mt*>(&sink) != nullptr;
}

}  // namespace

/// The bar, in the place of spdlog's console sink: what is logged passes through it.
class ProgressDisplay::Bar final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Bar(int descriptor) : descriptor_(descriptor), unicode_(locale_is_utf8()) {}

  /// Takes the console sink's place among the default logger's, or stands apart where there is none.
  static std::shared_ptr<Bar> install(int descriptor) {
    auto bar = std::make_shared<Bar>(descriptor);
    for (spdlog::sink_ptr& place : spdlog::default_logger()->sinks()) {
      if (!is_console(*place)) continue;
      bar->console_ = place;
      bar->set_level(place->level());
      place = bar;
      break;
    }
    return bar;
  }

  /// Ends the line and gives the console sink its place back.
  void remove() {
    for (spdlog::sink_ptr& place : spdlog::default_logger()->sinks()) {
      if (place.get() == this) place = console_;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    write_all(descriptor_, "\n");
  }

  void draw(const std::string& title, double share, const std::string& text, double seconds_left) {
    const std::lock_guard<std::mutex> lock(mutex_);
    line_ = bar_line(title, share, text, seconds_left, columns_of(descriptor_), unicode_);
    write_all(descriptor_, "\r" + line_ + kEraseRight);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    write_all(descriptor_, std::string("\r") + kEraseRight);
    console_->log(message);
    console_->flush();
    write_all(descriptor_, line_);
  }

  void flush_() override { console_->flush(); }
  void set_pattern_(const std::string& pattern) override { console_->set_pattern(pattern); }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    console_->set_formatter(std::move(formatter));
  }

 private:
  int descriptor_;
  bool unicode_;
  spdlog::sink_ptr console_;
  std::string line_;
};

ProgressDisplay::ProgressDisplay(std::string title, const ProgressOptions& options)
    : title_(std::move(title)), options_(options), seconds_left_(std::numeric_limits<double>::quiet_NaN()) {
  if (!is_terminal(options_.descriptor)) return;
  bar_ = Bar::install(options_.descriptor);
  bar_->draw(title_, share_, text_, seconds_left_);
}

ProgressDisplay::~ProgressDisplay() { finish(); }

void ProgressDisplay::update(double share, const std::string& text, double seconds_left) {
  if (is_finished_) return;
  share_ = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  text_ = text;
  seconds_left_ = seconds_left;
  is_logged_ = false;
  const auto now = std::chrono::steady_clock::now();
  if (bar_ && now - draw_time_ >= options_.redraw_every) {
    bar_->draw(title_, share_, text_, seconds_left_);
    draw_time_ = now;
  }
  if (!has_logged_ || now - log_time_ >= options_.line_every) log_line();
}

void ProgressDisplay::finish() {
  if (is_finished_) return;
  is_finished_ = true;
  if (!is_logged_) log_line();
  if (!bar_) return;
  bar_->draw(title_, share_, text_, seconds_left_);
  bar_->remove();
}

std::string ProgressDisplay::line() const {
  const std::string left = left_text(seconds_left_);
  return fmt::format("{} {}%  {}{}{}", title_, percent(share_), text_, left.empty() ? "" : "  ", left);
}

void ProgressDisplay::log_line() {
  is_logged_ = has_logged_ = true;
  log_time_ = std::chrono::steady_clock::now();
  const auto logger = spdlog::default_logger();
  const std::string text = line();
  if (!bar_) return logger->info(text);
  const spdlog::details::log_msg message(logger->name(), spdlog::level::info, text);
  for (const spdlog::sink_ptr& sink : logger->sinks()) {
    if (sink == bar_ || !sink->should_log(message.level)) continue;
    sink->log(message);
    sink->flush();
  }
}

std::string duration_text(double seconds) {
  constexpr double kLongest = 1e15;  // fits the integer
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, kLongest) + 0.5);
  if (whole >= 86400) return fmt::format("{}d {:02}:{:02}", whole / 86400, whole / 3600 % 24, whole / 60 % 60);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string bar_line(const std::string& title, double share, const std::string& text, double seconds_left, int columns,
                     bool unicode) {
  const int room = columns - 1;  // a character in the last column makes some terminals wrap
  std::string line = fmt::format("{} {:3}%", title, percent(share));
  if (columns >= kColumnsForABar) line += " " + cells(share, unicode);
  const std::string left = left_text(seconds_left);
  if (!left.empty()) line += " " + left;
  const std::string fields = fitting_fields(text, room - width_of(line) - 2);
  if (!fields.empty()) line += "  " + fields;
  for (char& byte : line) {
    if (static_cast<unsigned char>(byte) < ' ') byte = '?';  // a line break in a file's name must not move the bar
  }
  return cut(line, room);
}

}  // namespace tempo::train
