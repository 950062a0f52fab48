#include "kernels/cpu/thread_pool.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.hpp"
#include "base/cpu_topology.hpp"
#include "base/system.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace outrider::kernels {
namespace {

/// About 20 microseconds: longer than most gaps between two operations of a step.
constexpr int k_spins = 600;
/// Waking a sleeper can take as long where CPUs are virtual, so a thread sleeps only after what may
/// be the gap between two steps; meanwhile it makes room for others.
constexpr auto k_yielding = std::chrono::microseconds(200);
constexpr uint64_t k_unclaimed_mask = 0xFFFFFFFFu;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Waits a while for done() to hold; returns whether it does.
template <class Done>
bool spin_until(Done done) {
  for (int spin = 0; spin < k_spins; ++spin) {
    if (done()) return true;
    pause();
  }
  const auto end = std::chrono::steady_clock::now() + k_yielding;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads, std::vector<uint32_t> cpus) : cpus_(std::move(cpus)) {
  set_threads(threads);
}

ThreadPool::~ThreadPool() {
  stop_workers();
}

void ThreadPool::set_threads(uint32_t threads) {
  OUTRIDER_CHECK(threads >= 1);
  if (threads == this->threads()) return;
  stop_workers();
  stop_.store(false);
  workers_.reserve(threads - 1);
  try {
    for (uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
  } catch (const std::system_error& error) {
    const size_t started = workers_.size() + 1;
    stop_workers();
    throw std::runtime_error("only " + std::to_string(started) + " of " + std::to_string(threads) +
                             " compute threads could be started: " + error.what());
  }
}

void ThreadPool::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run(size_t count, ItemFunction function, void* context) {
  OUTRIDER_CHECK(count <= k_unclaimed_mask, count);
  count_.store(count, std::memory_order_relaxed);
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  unfinished_.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
  const uint64_t job = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  // Sequentially consistent, like the two accesses of a worker that goes to sleep: either it sees
  // the job, or we see that it sleeps.
  ticket_.store(job << 32 | count, std::memory_order_seq_cst);
  if (sleeping_workers_.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(mutex_); }
    work_.notify_all();
  }
  take_items();
  if (spin_until([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  finished_.wait(lock, [&] { return unfinished_.load(std::memory_order_seq_cst) == 0; });
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

void ThreadPool::take_items() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket & k_unclaimed_mask) != 0) {
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    // The claimed item keeps its job alive, so these belong to it.
    const size_t index = count_.load(std::memory_order_relaxed) - (ticket & k_unclaimed_mask);
    const ItemFunction function = function_.load(std::memory_order_relaxed);
    function(context_.load(std::memory_order_relaxed), index);
    if (unfinished_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        caller_sleeps_.load(std::memory_order_seq_cst)) {
      { const std::lock_guard lock(mutex_); }
      finished_.notify_one();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::bind_caller() {
  if (bound_caller_ == std::this_thread::get_id()) return;
  bound_caller_ = std::this_thread::get_id();
  (void)bind_this_thread(cpus_[0]);
}

void ThreadPool::worker_loop(uint32_t thread) {
  name_this_thread("compute");
  if (thread < cpus_.size()) (void)bind_this_thread(cpus_[thread]);
  const auto has_work = [&] {
    return (ticket_.load(std::memory_order_seq_cst) & k_unclaimed_mask) != 0 || stop_.load();
  };
  while (!stop_.load(std::memory_order_relaxed)) {
    take_items();
    const auto has_items = [&] {
      return (ticket_.load(std::memory_order_acquire) & k_unclaimed_mask) != 0;
    };
    if (spin_until(has_items)) continue;
    std::unique_lock lock(mutex_);
    sleeping_workers_.fetch_add(1, std::memory_order_seq_cst);
    work_.wait(lock, has_work);
    sleeping_workers_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace outrider::kernels
