#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace outrider {

/// A bounded queue from one thread to one other; neither ever waits or allocates: slots are made
/// once, filled where they are, and keep what memory they have.
template <class T>
class SpscQueue {
 public:
  /// Each slot begins as a copy of `blank`.
  explicit SpscQueue(size_t capacity, const T& blank = {}) : slots_(capacity, blank) {}

  // -- the producer's ------------------------------------------------------------------------
  /// The slot that `push` hands over, or null while the queue is full.
  T* free_slot() {
    const uint64_t at = pushed_.load(std::memory_order_relaxed);
    if (at - popped_.load(std::memory_order_acquire) == slots_.size()) return nullptr;
    return &slots_[at % slots_.size()];
  }
  void push() {
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // -- the consumer's ------------------------------------------------------------------------
  /// The oldest element, or the one `ahead` places behind it; null where there is none.
  T* front(size_t ahead = 0) {
    const uint64_t at = popped_.load(std::memory_order_relaxed) + ahead;
    if (at >= pushed_.load(std::memory_order_acquire)) return nullptr;
    return &slots_[at % slots_.size()];
  }
  /// Gives the oldest ones' slots back.
  void pop(size_t count = 1) {
    popped_.store(popped_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }

  /// Exact for both; a number that was true a moment ago for others.
  size_t size() const {
    const uint64_t popped = popped_.load(std::memory_order_acquire);
    return static_cast<size_t>(pushed_.load(std::memory_order_acquire) - popped);
  }

 private:
  std::vector<T> slots_;
  alignas(64) std::atomic<uint64_t> pushed_ = 0;
  alignas(64) std::atomic<uint64_t> popped_ = 0;
};

}  // namespace outrider
