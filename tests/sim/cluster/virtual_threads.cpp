#include "tests/sim/cluster/virtual_threads.hpp"

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
  /// By whoever is not this thread.
  void join() {
    is_ending_ = true;
    while (!has_ended_) take_turn();
    thread_.join();
  }
  /// By this thread.
  void wait(Duration most) {
    if (is_ending_) return;
    go_on_after(most);
    others_turn_.release();
    its_turn_.acquire();
  }
  void wake() { go_on_after(Duration{0}); }
  bool is_ending() const { return is_ending_; }
  static VirtualThread& current() { return *current_; }

 private:
  /// Unless it has gone on before.
  void go_on_after(Duration delay) {
    runtime_.time().after(delay, [it = weak_from_this(), turn = turns_] {
      if (const auto thread = it.lock()) thread->go_on(turn);
    });
  }
  void go_on(uint64_t turn) {
    if (has_ended_ || is_ending_ || turn != turns_) return;
    if (runtime_.paused(process_)) return go_on_after(std::chrono::milliseconds(20));
    take_turn();
  }
  void take_turn() {
    ++turns_;
    its_turn_.release();
    others_turn_.acquire();
  }

  static thread_local VirtualThread* current_;

  Runtime& runtime_;
  ProcessId process_;
  std::thread thread_;
  std::binary_semaphore its_turn_{0};
  std::binary_semaphore others_turn_{0};
  uint64_t turns_ = 0;
  bool has_ended_ = false;
  bool is_ending_ = false;
};

thread_local VirtualThread* VirtualThread::current_ = nullptr;

namespace {

class Started final : public actors::LineThreads::Thread {
 public:
  explicit Started(std::shared_ptr<VirtualThread> thread) : thread_(std::move(thread)) {}
  ~Started() override { thread_->join(); }

 private:
  std::shared_ptr<VirtualThread> thread_;
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
  return std::make_unique<Started>(std::move(thread));
}

std::unique_ptr<actors::LineThreads::Condition> VirtualThreads::condition() {
  return std::make_unique<VirtualCondition>();
}

void VirtualThreads::wait(Duration most) {
  VirtualThread::current().wait(most);
}

bool VirtualThreads::is_ending() {
  return VirtualThread::current().is_ending();
}

std::shared_ptr<VirtualThread> VirtualThreads::current() {
  return VirtualThread::current().shared_from_this();
}

void VirtualThreads::wake(const std::weak_ptr<VirtualThread>& thread) {
  if (const auto it = thread.lock()) it->wake();
}

}  // namespace outrider::sim::cluster
