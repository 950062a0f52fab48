#include "tools/bounded_stop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/log.hpp"
#include "tools/command.hpp"
#include "tools/stop_signals.hpp"

namespace outrider::tools {
namespace {

using testing::ExitedWithCode;

constexpr Duration k_soon = std::chrono::milliseconds(1);

std::shared_ptr<spdlog::logger> logger() {
  return *make_logger({});
}

[[noreturn]] void hang() {
  while (true) ::pause();
}

/// Nothing more can be written to stderr, and nobody will read it.
void fill_stderr() {
  int ends[2] = {};
  if (::pipe(ends) != 0) std::abort();
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  while (::write(ends[1], "x", 1) == 1) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  ::dup2(ends[1], 2);
}

TEST(RunningTime, WhileAProcessIsStoppedNoneOfItPasses) {
  using std::chrono::milliseconds;
  RunningTime running(milliseconds(100), TimePoint{milliseconds(5000)});
  EXPECT_EQ(running.look(TimePoint{milliseconds(5070)}), milliseconds(70));
  EXPECT_EQ(running.look(TimePoint{milliseconds(60'000)}), milliseconds(200)) << "a minute";
  EXPECT_EQ(running.look(TimePoint{milliseconds(60'090)}), milliseconds(90));
}

class BoundedStopDeathTest : public testing::Test {
 protected:
  BoundedStopDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(BoundedStopDeathTest, WhereItHangsIsLoggedAndLeft) {
  const auto stop = [] {
    BoundedStop bounded(std::chrono::seconds(1), logger());
    bounded.enter("leaving");
    bounded.enter("waiting for a peer");
    hang();
  };
  EXPECT_EXIT(stop(), ExitedWithCode(k_exit_hung), "E the stop hangs: waiting for a peer, for ");
}

TEST_F(BoundedStopDeathTest, WhatFollowsItsEndIsWatchedToo) {
  const auto stop = [] {
    BoundedStop bounded(k_soon, logger());
    bounded.end();
    hang();
  };
  EXPECT_EXIT(stop(), ExitedWithCode(k_exit_hung), "the stop hangs: ending the process");
}

TEST_F(BoundedStopDeathTest, ASignalThatNobodyTakesIsAHang) {
  const auto stop = [] {
    capture_stop_signals();
    const BoundedStop bounded(k_soon, logger());
    ::kill(::getpid(), SIGTERM);
    hang();
  };
  EXPECT_EXIT(stop(), ExitedWithCode(k_exit_hung), "the stop hangs: hearing the signal");
}

TEST_F(BoundedStopDeathTest, ALogThatNobodyReadsHoldsNothingUp) {
  const auto stop = [] {
    fill_stderr();
    BoundedStop(k_soon, logger()).enter("leaving");
    hang();
  };
  EXPECT_EXIT(stop(), ExitedWithCode(k_exit_hung), "");
}

TEST_F(BoundedStopDeathTest, AStopInTimeTellsWhatTookHowLong) {
  const auto stop = [] {
    BoundedStop bounded(std::chrono::hours(1), logger());
    bounded.enter("leaving");
    bounded.enter("ending the actors");
    bounded.end();
    std::exit(k_exit_done);
  };
  EXPECT_EXIT(stop(), ExitedWithCode(k_exit_done),
              "stopped in [0-9.]+ s: leaving [0-9.]+, ending the actors [0-9.]+\n");
}

}  // namespace
}  // namespace outrider::tools
