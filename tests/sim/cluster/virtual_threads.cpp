#include "tests/sim/cluster/virtual_threads.hpp"

#include <algorithm>
#include <chrono>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace outrider::sim::cluster {

/// One thread. It and the rest of the simulation take turns.
class VirtualThread : public std::enable_shared_from_this<VirtualThread> {
 public:
  VirtualThread(Runtime& runtime, ProcessId process) : runtime_(runtime), process_(process) {}

  void start(std::function<void()> run) {
    thread_ = std::thread([this, run = std::move(run)] {
      its_turn_.acquire();
      current_ = this;
      run();
      has_ended_ = true;
      others_turn_.release();
    });
    go_on_after(Duration{0});
  }
  /// By whoever is not this thread. How long it waited meanwhile, but for what it slept.
  Duration join() {
    is_joined_ = true;
    if (!has_ended_) {
      run_ahead(std::max(wait_ends_ - runtime_.now(), Duration{0}));
      take_turn();
    }
    thread_.join();
    return waited_;
  }
  /// By this thread.
  void wait(Duration most) {
    is_woken_ = false;
    wait_ends_ = runtime_.now() + most;
    if (is_joined_) return run_ahead(most);
    go_on_after(most);
    others_turn_.release();
    its_turn_.acquire();
  }
  void sleep(Duration time) {
    sleeps_ = true;
    wait(time);
    sleeps_ = false;
  }
  void wake() {
    is_woken_ = true;
    if (!sleeps_) go_on_after(Duration{0});
  }
  Duration ahead() const { return ahead_; }
  /// Null: the caller is no such thread.
  static VirtualThread* current() { return current_; }

 private:
  /// Unless it has gone on before.
  void go_on_after(Duration delay) {
    runtime_.time().after(delay, [it = weak_from_this(), turn = turns_] {
      if (const auto thread = it.lock()) thread->go_on(turn);
    });
  }
  void go_on(uint64_t turn) {
    if (has_ended_ || is_joined_ || turn != turns_) return;
    if (runtime_.paused(process_)) return go_on_after(std::chrono::milliseconds(20));
    take_turn();
  }
  void take_turn() {
    ++turns_;
    its_turn_.release();
    others_turn_.acquire();
  }
  void run_ahead(Duration by) {
    if (is_woken_ && !sleeps_) return;
    ahead_ += by;
    if (!sleeps_) waited_ += by;
  }

  static thread_local VirtualThread* current_;

  Runtime& runtime_;
  ProcessId process_;
  std::thread thread_;
  std::binary_semaphore its_turn_{0};
  std::binary_semaphore others_turn_{0};
  uint64_t turns_ = 0;
  TimePoint wait_ends_{0};
  bool is_woken_ = false;  ///< From the last wait.
  bool sleeps_ = false;
  bool has_ended_ = false;
  bool is_joined_ = false;
  Duration ahead_{0};
  Duration waited_{0};
};

thread_local VirtualThread* VirtualThread::current_ = nullptr;

namespace {

/// What a message takes whose sender has just begun to wait for its way.
constexpr Duration k_late_end = std::chrono::milliseconds(300);

class Started final : public actors::LineThreads::Thread {
 public:
  Started(std::shared_ptr<VirtualThread> thread, std::function<void(Duration)> on_end)
      : thread_(std::move(thread)), on_end_(std::move(on_end)) {}
  ~Started() override { on_end_(thread_->join()); }

 private:
  std::shared_ptr<VirtualThread> thread_;
  std::function<void(Duration)> on_end_;
};

class VirtualCondition final : public actors::LineThreads::Condition {
 public:
  void notify() override {
    for (const auto& thread : std::exchange(waiting_, {})) VirtualThreads::wake(thread);
  }
  void wait_for(std::unique_lock<std::mutex>& lock, Duration most) override {
    waiting_.push_back(VirtualThreads::current());
    lock.unlock();
    VirtualThreads::wait(most);
    lock.lock();
  }

 private:
  std::vector<std::weak_ptr<VirtualThread>> waiting_;
};

}  // namespace

std::unique_ptr<actors::LineThreads::Thread> VirtualThreads::start(std::function<void()> run) {
  auto thread = std::make_shared<VirtualThread>(runtime_, process_);
  thread->start(std::move(run));
  const auto on_end = [&runtime = runtime_, process = process_, say = on_late_end_](Duration it) {
    if (it > k_late_end && runtime.alive(process)) say(it);
  };
  return std::make_unique<Started>(std::move(thread), on_end);
}

std::unique_ptr<actors::LineThreads::Condition> VirtualThreads::condition() {
  return std::make_unique<VirtualCondition>();
}

void VirtualThreads::wait(Duration most) {
  VirtualThread::current()->wait(most);
}

void VirtualThreads::sleep(Duration time) {
  VirtualThread::current()->sleep(time);
}

Duration VirtualThreads::ahead() {
  const VirtualThread* thread = VirtualThread::current();
  return thread == nullptr ? Duration{0} : thread->ahead();
}

std::shared_ptr<VirtualThread> VirtualThreads::current() {
  return VirtualThread::current()->shared_from_this();
}

void VirtualThreads::wake(const std::weak_ptr<VirtualThread>& thread) {
  if (const auto it = thread.lock()) it->wake();
}

}  // namespace outrider::sim::cluster
