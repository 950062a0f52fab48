#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "actors/line_threads.hpp"
#include "tests/sim/cluster/runtime.hpp"

namespace outrider::sim::cluster {

class VirtualThread;

/// The threads of one process, each a real one that runs only while everything else waits for it:
/// until it waits itself, in virtual time. While its process is paused it does not go on. Whoever
/// joins one has it run on to its end at once: what it waits for then, and is not woken from, it
/// waits for in a time of its own, while nothing else happens.
class VirtualThreads final : public actors::LineThreads {
 public:
  /// Of a thread that waited so long when it was to end, in a process that lives.
  using OnLateEnd = std::function<void(Duration waited)>;
  VirtualThreads(Runtime& runtime, ProcessId process, OnLateEnd on_late_end)
      : runtime_(runtime), process_(process), on_late_end_(std::move(on_late_end)) {}

  std::unique_ptr<Thread> start(std::function<void()> run) override;
  std::unique_ptr<Condition> condition() override;

  /// Of the thread that calls: it waits that long, or until it is woken.
  static void wait(Duration most);
  /// The same, but nothing wakes it, and it may when it is to end.
  static void sleep(Duration time);
  /// How far the caller's own time is ahead of the rest's; 0 where it is no such thread.
  static Duration ahead();
  static std::shared_ptr<VirtualThread> current();
  static void wake(const std::weak_ptr<VirtualThread>& thread);

 private:
  Runtime& runtime_;
  ProcessId process_;
  OnLateEnd on_late_end_;
};

}  // namespace outrider::sim::cluster
