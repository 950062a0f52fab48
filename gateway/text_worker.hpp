#pragma once

#include <kj/async.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/limits.hpp"
#include "base/result.hpp"

namespace outrider::gateway {

/// One thread for text that takes long to parse, template or tokenize, so that the streams of
/// others go on meanwhile. What is below limits::inline_text_bytes_max runs at once on the caller's
/// thread. A tenant may have as many jobs waiting as there are free places, so that one alone takes
/// half of the queue and the next ones find room; after a tenant's job comes another tenant's,
/// otherwise jobs run in order. One that nobody waits for any more has no place. Used from the KJ
/// thread; the destructor waits for the job in work.
class TextWorker {
 public:
  TextWorker();
  ~TextWorker();
  TextWorker(const TextWorker&) = delete;
  TextWorker& operator=(const TextWorker&) = delete;

  /// The result of `job`, whose cost is that of `bytes` of input; it may touch only what it owns.
  /// `overloaded` when too many wait, of all tenants or of this one.
  template <class T>
  kj::Promise<kj::Own<Result<T>>> run(const std::string& tenant, size_t bytes,
                                      std::function<Result<T>()> job) {
    if (bytes <= limits::inline_text_bytes_max) return kj::heap<Result<T>>(job());
    // The value waits on the heap: what crosses threads is only that it is there.
    auto slot = std::make_shared<std::optional<Result<T>>>();
    auto done = push(tenant, [slot, job = std::move(job)] { slot->emplace(job()); });
    KJ_IF_MAYBE (ready, done) {
      return ready->then([slot] { return kj::heap<Result<T>>(std::move(**slot)); });
    }
    return kj::heap<Result<T>>(
        fail(ErrorCode::overloaded, "too many long texts wait to be tokenized"));
  }

 private:
  struct Job;
  /// Nothing when there is no place.
  kj::Maybe<kj::Promise<void>> push(const std::string& tenant, std::function<void()> work);
  std::unique_ptr<Job> next_job();
  void run_jobs();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;
  std::string last_tenant_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outrider::gateway
