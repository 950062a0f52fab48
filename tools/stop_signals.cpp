#include "tools/stop_signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>

#include "base/clock.hpp"

namespace outrider::tools {
namespace {

constexpr int k_stops[] = {SIGTERM, SIGINT};
constexpr Duration k_echo = std::chrono::milliseconds(200);
std::atomic<int> g_exit_code;         // a signal handler can reach nothing but statics
std::atomic<int64_t> g_heard_ns = 0;  ///< The last that counted.

/// GNU timeout signals its child and then its group, a terminal everybody in it, and parents hand
/// theirs on: one wish to stop may arrive twice. Async-signal-safe.
bool is_echo() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  const int64_t at_ns = at.tv_sec * 1'000'000'000 + at.tv_nsec;
  if (at_ns < g_heard_ns + k_echo.count()) return true;
  g_heard_ns = at_ns;
  return false;
}

}  // namespace

void capture_stop_signals() {
  for (const int number : k_stops) kj::UnixEventPort::captureSignal(number);
}

kj::Promise<void> stop_signal(kj::UnixEventPort& port) {
  return port.onSignal(SIGTERM)
      .ignoreResult()
      .exclusiveJoin(port.onSignal(SIGINT).ignoreResult())
      .then([&port]() -> kj::Promise<void> {
        if (is_echo()) return stop_signal(port);
        return kj::READY_NOW;
      });
}

bool is_stop_signal_pending() {
  sigset_t pending;
  sigemptyset(&pending);
  ::sigpending(&pending);
  return std::ranges::any_of(k_stops,
                             [&](int number) { return sigismember(&pending, number) == 1; });
}

void end_at_once(int exit_code) {
  constexpr char k_last_words[] = "outrider: one more signal: ended at once\n";
  [[maybe_unused]] const auto written = ::write(2, k_last_words, sizeof(k_last_words) - 1);
  ::_exit(exit_code);
}

void end_at_the_next_signal(int exit_code) {
  g_exit_code = exit_code;
  sigset_t stops;
  sigemptyset(&stops);
  for (const int number : k_stops) {
    std::signal(number, [](int) {
      if (is_echo()) return;
      end_at_once(g_exit_code);
    });
    sigaddset(&stops, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

}  // namespace outrider::tools
