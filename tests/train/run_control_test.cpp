#include "train/run_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"
#include "train/run_dir.h"

namespace tempo::train {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;
using testing::value_error_of;

class RunControlTest : public ::testing::Test {
 protected:
  testing::TemporaryDirectory folder_;
  std::filesystem::path run_ = folder_ / "run";
  std::optional<RunDirectory> directory_{std::in_place, run_, false, "a: 1\n"};
  RunControl control_{run_};
};

TEST_F(RunControlTest, HearsOfARequestOnce) {
  EXPECT_EQ(control_.stop_reason(), nullptr);
  EXPECT_FALSE(control_.take_save_request());
  ask(run_, Request::kSave);
  EXPECT_TRUE(control_.take_save_request());
  EXPECT_FALSE(control_.take_save_request());
  EXPECT_EQ(control_.stop_reason(), nullptr);
  EXPECT_FALSE(std::filesystem::exists(RunDirectory::request_file(run_)));
}

TEST_F(RunControlTest, StaysAskedToEndWhateverIsAskedLater) {
  ask(run_, Request::kStop);
  ask(run_, Request::kSave);
  EXPECT_THAT(control_.stop_reason(), StrEq("tempo ctl"));
  EXPECT_THAT(control_.stop_reason(), StrEq("tempo ctl"));
}

TEST_F(RunControlTest, OnlyAProcessAtWorkIsAsked) {
  directory_.reset();
  EXPECT_THAT(value_error_of([&] { ask(run_, Request::kStop); }), HasSubstr("no tempo train works on this run"));
  EXPECT_THAT(value_error_of([&] { ask(folder_ / "gone", Request::kStop); }), HasSubstr("is no folder of a run"));
}

TEST_F(RunControlTest, ForgetsWhatAnEarlierProcessWasAsked) {
  ask(run_, Request::kStop);
  directory_.reset();
  std::ofstream(RunDirectory::request_file(run_)) << "stop\n";
  directory_.emplace(RunDirectory::reopen(run_));
  EXPECT_EQ(RunControl(run_).stop_reason(), nullptr);
}

}  // namespace
}  // namespace tempo::train
