#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace outrider::kernels {

/// Runs the items of one job on the calling thread and threads - 1 workers. Owned and called by
/// one thread at a time. Workers spin and yield for 0.2 ms after a job, then sleep. A job
/// allocates nothing, and a worker that is not scheduled delays nobody: the caller takes its items.
/// With `cpus`, thread i stays on cpus[i] if there is one; thread 0 is the caller, from its first
/// job on. A CPU that the system does not grant is left alone.
class ThreadPool {
 public:
  explicit ThreadPool(uint32_t threads, std::vector<uint32_t> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }
  /// Between jobs only. Throws std::runtime_error when that many cannot be started.
  void set_threads(uint32_t threads);

  /// Calls body(i) once for each i in [0, count), in any order and on any of the threads, and
  /// returns when all are done. The body must not throw.
  template <class Body>
  void parallel_for(size_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (!cpus_.empty()) bind_caller();
    if (count <= 1 || workers_.empty()) {
      for (size_t i = 0; i < count; ++i) body(i);
      return;
    }
    run(
        count, [](void* context, size_t i) { (*static_cast<Plain*>(context))(i); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using ItemFunction = void (*)(void*, size_t);

  void run(size_t count, ItemFunction function, void* context);
  void take_items();
  void worker_loop(uint32_t thread);
  void bind_caller();
  void stop_workers();

  /// High half: number of the job; low half: items that nobody has claimed yet. Claiming is a
  /// compare-exchange, so a thread that still looks at an old job cannot touch a new one.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> unfinished_{0};
  std::atomic<size_t> count_{0};
  std::atomic<ItemFunction> function_{nullptr};
  std::atomic<void*> context_{nullptr};

  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> sleeping_workers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable finished_;
  std::vector<uint32_t> cpus_;
  std::thread::id bound_caller_;
  std::vector<std::thread> workers_;
};

}  // namespace outrider::kernels
