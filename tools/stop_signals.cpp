#include "tools/stop_signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace outrider::tools {
namespace {

constexpr int k_stops[] = {SIGTERM, SIGINT};
std::atomic<int> g_exit_code;  // a signal handler can reach nothing but statics

}  // namespace

void capture_stop_signals() {
  for (const int number : k_stops) kj::UnixEventPort::captureSignal(number);
}

kj::Promise<void> stop_signal(kj::UnixEventPort& port) {
  return port.onSignal(SIGTERM).ignoreResult().exclusiveJoin(port.onSignal(SIGINT).ignoreResult());
}

void end_at_the_next_signal(int exit_code) {
  g_exit_code = exit_code;
  sigset_t stops;
  sigemptyset(&stops);
  for (const int number : k_stops) {
    std::signal(number, [](int) {
      constexpr char k_last_words[] = "outrider: a second signal: stopped at once\n";
      [[maybe_unused]] const auto written = ::write(2, k_last_words, sizeof(k_last_words) - 1);
      ::_exit(g_exit_code);
    });
    sigaddset(&stops, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &stops, nullptr);
}

}  // namespace outrider::tools
