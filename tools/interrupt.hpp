#pragma once

#include <atomic>
#include <csignal>

namespace outrider::tools {

/// While it lives, Ctrl-C sets a flag instead of ending the program. One at a time.
class Interrupt {
 public:
  Interrupt() {
    raised_flag() = false;
    struct sigaction handler {};
    handler.sa_handler = [](int) { raised_flag() = true; };
    sigaction(SIGINT, &handler, &previous_);
  }
  ~Interrupt() { sigaction(SIGINT, &previous_, nullptr); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool raised() const { return raised_flag(); }

 private:
  static std::atomic<bool>& raised_flag() {
    static std::atomic<bool> raised = false;  // a signal handler can reach nothing but statics
    return raised;
  }
  struct sigaction previous_ {};
};

}  // namespace outrider::tools
