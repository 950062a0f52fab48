#include "tools/background_load.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <future>

#include "base/log.hpp"
#include "tools/stop_signals.hpp"

namespace outrider::tools {
namespace {

/// The load may win: who waits next is to hear of it all the same.
TEST(BackgroundLoad, AStopThatComesAsTheLoadEndsIsHeard) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  capture_stop_signals();
  auto io = kj::setupAsyncIo();
  auto stop = stop_signal(io.unixEventPort).fork();
  BackgroundLoad<int> loading([](const std::atomic<bool>&) -> Result<int> {
    ::kill(::getpid(), SIGTERM);
    return 7;
  });
  const Result<int>* loaded = loading.wait(io.waitScope, stop.addBranch());
  EXPECT_TRUE(loaded == nullptr || **loaded == 7);
  io.provider->getTimer().timeoutAfter(10 * kj::SECONDS, stop.addBranch()).wait(io.waitScope);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(BackgroundLoad, MemoryThatRunsOutIsItsError) {
  const auto io = kj::setupAsyncIo();
  BackgroundLoad<int> loading(
      [](const std::atomic<bool>&) -> Result<int> { throw std::bad_alloc(); });
  const Result<int>* loaded = loading.wait(io.waitScope, kj::NEVER_DONE);
  ASSERT_NE(loaded, nullptr);
  ASSERT_FALSE(loaded->ok());
  EXPECT_EQ(loaded->error().field, "kv_memory");
}

TEST(BackgroundLoad, ThatIsToldToStopSaysWhetherItHas) {
  const auto io = kj::setupAsyncIo();
  std::promise<void> go_on;
  BackgroundLoad<int> deaf([&go_on](const std::atomic<bool>&) -> Result<int> {
    go_on.get_future().wait();
    return 7;
  });
  EXPECT_FALSE(deaf.stop_within(std::chrono::milliseconds(1)));
  go_on.set_value();
  BackgroundLoad<int> hears([](const std::atomic<bool>& stop) -> Result<int> {
    stop.wait(false);
    return 7;
  });
  EXPECT_TRUE(hears.stop_within(std::chrono::seconds(30)));
}

/// Amid a measurement, or a kernel.
TEST(BackgroundLoadDeathTest, ALoadThatDoesNotHearEndsAllTheSame) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stop = [] {
    const auto io = kj::setupAsyncIo();
    const auto log = *make_logger({});
    BackgroundLoad<int> deaf([](const std::atomic<bool>&) -> Result<int> {
      while (true) ::pause();
    });
    BoundedStop stopping(std::chrono::hours(1), log);
    give_up(deaf, stopping, *log);
  };
  EXPECT_EXIT(stop(), testing::ExitedWithCode(k_exit_interrupted), "stopped amid its load");
}

}  // namespace
}  // namespace outrider::tools
