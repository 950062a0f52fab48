#pragma once

#include <kj/async.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/limits.hpp"
#include "base/result.hpp"

namespace outrider::gateway {

/// One thread for text that takes long to parse, template or tokenize, so that the streams of
/// others go on meanwhile. What is below limits::inline_text_bytes_max runs at once on the caller's
/// thread. Jobs run in order; one that nobody waits for any more is skipped. Used from the KJ
/// thread; the destructor waits for the job in work.
class TextWorker {
 public:
  TextWorker();
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  /// The result of `job`, whose cost is that of `bytes` of input; it may touch only what it owns.
  /// `overloaded` when too many wait.
  template <class T>
  kj::Promise<kj::Own<Result<T>>> run(size_t bytes, std::function<Result<T>()> job) {
    if (bytes <= limits::inline_text_bytes_max) return kj::heap<Result<T>>(job());
    // The value waits on the heap: what crosses threads is only that it is there.
    auto slot = std::make_shared<std::optional<Result<T>>>();
    auto done = push([slot, job = std::move(job)] { slot->emplace(job()); });
    KJ_IF_MAYBE (ready, done) {
      return ready->then([slot] { return kj::heap<Result<T>>(std::move(**slot)); });
    }
    return kj::heap<Result<T>>(
        fail(ErrorCode::overloaded, "too many long texts wait to be tokenized"));
  }

 private:
  struct Job;
  /// Nothing when the queue is full.
  kj::Maybe<kj::Promise<void>> push(std::function<void()> work);
  void run_jobs();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outrider::gateway
