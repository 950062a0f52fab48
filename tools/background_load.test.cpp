#include "tools/background_load.hpp"

#include <gtest/gtest.h>

#include <csignal>

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

}  // namespace
}  // namespace outrider::tools
