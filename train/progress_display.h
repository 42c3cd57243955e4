// How far a long command is: a bar on a terminal, a line of the log now and then without one.
//
// A terminal is a descriptor that isatty calls one, unless TERM is dumb. There, one line at the bottom is redrawn;
// what spdlog writes to stderr meanwhile appears above it. Elsewhere a state is logged as an information: the first,
// the last, and one per interval between. With a terminal these lines go to the other sinks alone (the run's log
// file), so that files read the same either way.
// Not for: results, which the caller logs. Thread rule: one display at a time, driven by one thread; any thread may log through
// spdlog's default logger, whose sinks must not be changed while a display exists.
#pragma once

#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

namespace tempo::train {

struct ProgressOptions {
  int descriptor = STDERR_FILENO;                ///< where the bar is drawn
  std::chrono::milliseconds redraw_every{100};   ///< a faster bar cannot be read
  std::chrono::milliseconds line_every{30'000};  ///< from one logged line to the next
};

class ProgressDisplay {
 public:
  /// `title` says what goes on, in a word: "train".
  explicit ProgressDisplay(std::string title, const ProgressOptions& options = {});

  /// Ends as finish() does, an exception under way or not.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// The present state; cheap enough for every step. `share` done is from 0 to 1. `text` has fields with two spaces between, the
  /// most important first: a narrow terminal shows those that fit. `seconds_left` is left out where it is not finite.
  void update(double share, const std::string& text, double seconds_left);

  /// Shows the last state, leaves the terminal on a fresh line and gives stderr back. Further updates do nothing.
  void finish();

 private:
  class Bar;

  std::string line() const;
  void log_line();

  std::string title_;
  ProgressOptions options_;
  std::shared_ptr<Bar> bar_;  ///< null without a terminal
  double share_ = 0;
  std::string text_;
  double seconds_left_;
  bool is_finished_ = false;
  bool is_logged_ = true;  ///< whether the present state has been
  bool has_logged_ = false;
  std::chrono::steady_clock::time_point log_time_;
  std::chrono::steady_clock::time_point draw_time_;
};

/// "0:07", "12:34", "3:05:00", "2d 03:05".
std::string duration_text(double seconds);

/// One line for a terminal of `columns` columns: title, percentage, bar, time left, and of `text` the fields that fit. Without
/// `unicode` it is plain ASCII (as long as title and text are).
std::string bar_line(const std::string& title, double share, const std::string& text, double seconds_left, int columns,
                     bool unicode);

}  // namespace tempo::train
