#include "train/progress_display.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <limits>
#include <sstream>

namespace tempo::train {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// The default logger's output while a test runs, as a file sink would get it.
class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::move(sink)));
    spdlog::default_logger()->set_pattern("%v");
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }

  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

/// Small systems (containers, chroots) may have no pseudo-terminals.
bool has_terminals() {
  const int descriptor = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (descriptor >= 0) ::close(descriptor);
  return descriptor >= 0;
}

/// A pseudo-terminal of some width; `shown` is everything drawn on it so far.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    EXPECT_EQ(::grantpt(master_), 0);
    EXPECT_EQ(::unlockpt(master_), 0);
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_row = 25;
    size.ws_col = columns;
    EXPECT_EQ(::ioctl(master_, TIOCSWINSZ, &size), 0);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }

  int descriptor() const { return slave_; }

  std::string shown() {
    char bytes[4096];
    for (ssize_t count; (count = ::read(master_, bytes, sizeof(bytes))) > 0;) text_.append(bytes, count);
    return text_;
  }

 private:
  int master_;
  int slave_;
  std::string text_;
};

/// Sets an environment variable while a test runs.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* before = ::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    ::setenv(name, value, 1);
  }
  ~Environment() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  bool had_;
  std::string before_;
};

TEST(ProgressWithoutATerminal, LogsTheFirstAndTheLastStateAndNothingWithinTheInterval) {
  const CapturedLog log;
  {
    ProgressDisplay display("count", {-1, 0ms, 1h});
    for (int i = 1; i <= 5; ++i) display.update(i / 5.0, "item " + std::to_string(i), 5.0 - i);
  }
  EXPECT_EQ(log.text(), "count 20%  item 1  left 0:04\ncount 100%  item 5  left 0:00\n");
}

TEST(ProgressWithoutATerminal, LogsAgainWhenTheIntervalIsOver) {
  const CapturedLog log;
  ProgressDisplay display("count", {-1, 0ms, 0ms});
  display.update(0.25, "a", kUnknown);
  display.update(0.5, "b", 90);
  display.finish();
  display.finish();
  display.update(0.75, "c", 1);
  EXPECT_EQ(log.text(), "count 25%  a\ncount 50%  b  left 1:30\n");
}

TEST(ProgressWithoutATerminal, SaysNothingWhenNothingHappened) {
  const CapturedLog log;
  { const ProgressDisplay display("count", {-1, 0ms, 0ms}); }
  EXPECT_EQ(log.text(), "");
}

class ProgressOnATerminal : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_terminals()) GTEST_SKIP() << "this system has no pseudo-terminals";
  }
};

TEST_F(ProgressOnATerminal, RedrawsOneLineAndEndsOnAFreshOne) {
  const Environment term("TERM", "xterm");
  const Environment locale("LC_ALL", "C");
  const CapturedLog log;
  Terminal terminal(80);
  ProgressDisplay display("count", {terminal.descriptor(), 0ms, 1h});
  display.update(0.5, "item 1  more of it", 60);
  display.update(1, "item 2", 0);
  display.finish();
  EXPECT_EQ(terminal.shown(),
            "\rcount   0% [--------------------]\x1b[K"
            "\rcount  50% [##########----------] left 1:00  item 1  more of it\x1b[K"
            "\rcount 100% [####################] left 0:00  item 2\x1b[K"
            "\rcount 100% [####################] left 0:00  item 2\x1b[K\r\n");
  // What the console does not show, files do.
  EXPECT_EQ(log.text(), "count 50%  item 1  more of it  left 1:00\ncount 100%  item 2  left 0:00\n");
}

TEST_F(ProgressOnATerminal, IsNotRedrawnMoreOftenThanAsked) {
  const Environment term("TERM", "xterm");
  const CapturedLog log;
  Terminal terminal(80);
  ProgressDisplay display("count", {terminal.descriptor(), 1h, 1h});
  for (int i = 1; i <= 1000; ++i) display.update(i / 1000.0, "item " + std::to_string(i), 1);
  const std::string shown = terminal.shown();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\r'), 2);  // title alone, first state
}

TEST_F(ProgressOnATerminal, IsLeftCleanByAnException) {
  const Environment term("TERM", "xterm");
  const CapturedLog log;
  Terminal terminal(80);
  try {
    ProgressDisplay display("count", {terminal.descriptor(), 1h, 1h});
    display.update(0.5, "item 1", 1);
    display.update(0.6, "item 2", 1);
    throw std::runtime_error("no more");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(terminal.shown(), ::testing::EndsWith("item 2\x1b[K\r\n"));
}

TEST_F(ProgressOnATerminal, TakesADumbOneForNone) {
  const Environment term("TERM", "dumb");
  const CapturedLog log;
  Terminal terminal(80);
  ProgressDisplay("count", {terminal.descriptor(), 0ms, 0ms}).update(0.5, "item 1", 1);
  EXPECT_EQ(terminal.shown(), "");
  EXPECT_EQ(log.text(), "count 50%  item 1  left 0:01\n");
}

TEST_F(ProgressOnATerminal, DrawsWithBlocksWhereTheLocaleIsUtf8) {
  const Environment term("TERM", "xterm");
  const Environment locale("LC_ALL", "C.UTF-8");
  const CapturedLog log;
  Terminal terminal(80);
  ProgressDisplay("count", {terminal.descriptor(), 0ms, 0ms}).update(0.5, "", 1);
  EXPECT_THAT(terminal.shown(), HasSubstr("██████████"));
}

TEST(BarLine, ShowsTheFieldsThatFit) {
  const std::string text = "step 5/10  loss 3.1234  lr 0.001";
  EXPECT_EQ(bar_line("train", 0.5, text, 60, 200, false), "train  50% [##########----------] left 1:00  " + text);
  EXPECT_EQ(bar_line("train", 0.5, text, 60, 70, false),
            "train  50% [##########----------] left 1:00  step 5/10  loss 3.1234");
  EXPECT_EQ(bar_line("train", 0.5, text, 60, 40, false), "train  50% left 1:00  step 5/10");
  EXPECT_EQ(bar_line("train", 0.5, text, 60, 20, false), "train  50% left 1:0");
  EXPECT_EQ(bar_line("train", 0.5, text, 60, 1, false), "");
}

TEST(BarLine, CountsCharactersAndNotBytes) {
  const std::string line = bar_line("train", 0.51, "größer", kUnknown, 80, true);
  EXPECT_EQ(line, "train  51% ▕██████████▏         ▏  größer");
  EXPECT_THAT(bar_line("train", 0.5, "größer", kUnknown, 18, true), "train  50%");
  EXPECT_THAT(bar_line("größer", 0.5, "", kUnknown, 5, true), "größ");
}

TEST(BarLine, KeepsControlCharactersOffTheTerminal) {
  EXPECT_THAT(bar_line("read", 0, "a\nb\x1b[2J.txt", kUnknown, 80, false), HasSubstr("a?b?[2J.txt"));
}

TEST(DurationText, GrowsWithTheDuration) {
  EXPECT_EQ(duration_text(7.4), "0:07");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(3600 * 3 + 300), "3:05:00");
  EXPECT_EQ(duration_text(86400 * 2 + 3600 * 3 + 300), "2d 03:05");
  EXPECT_EQ(duration_text(-1), "0:00");
  EXPECT_THAT(duration_text(1e300), HasSubstr("d "));
}

}  // namespace
}  // namespace tempo::train
