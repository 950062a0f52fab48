#pragma once

#include <memory>

#include "actors/line_threads.hpp"
#include "tests/sim/cluster/runtime.hpp"

namespace outrider::sim::cluster {

class VirtualThread;

/// The threads of one process, each a real one that runs only while everything else waits for it:
/// until it waits itself, in virtual time. While its process is paused it does not go on. Whoever
/// ends one, from outside, has its waits return at once until it has come to its end.
class VirtualThreads final : public actors::LineThreads {
 public:
  VirtualThreads(Runtime& runtime, ProcessId process) : runtime_(runtime), process_(process) {}

  std::unique_ptr<Thread> start(std::function<void()> run) override;
  std::unique_ptr<Condition> condition() override;

  /// Of the thread that calls: it waits that long, or until it is woken.
  static void wait(Duration most);
  /// The thread that calls is to come to its end.
  static bool is_ending();
  static std::shared_ptr<VirtualThread> current();
  static void wake(const std::weak_ptr<VirtualThread>& thread);

 private:
  Runtime& runtime_;
  ProcessId process_;
};

}  // namespace outrider::sim::cluster
