#include "gateway/text_worker.hpp"

#include <algorithm>

#include "base/system.hpp"

namespace outrider::gateway {

struct TextWorker::Job {
  std::string tenant;
  std::function<void()> work;
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> done;

  Job(std::string owner, std::function<void()> todo,
      kj::Own<kj::CrossThreadPromiseFulfiller<void>> fulfiller)
      : tenant(std::move(owner)), work(std::move(todo)), done(kj::mv(fulfiller)) {}
  // A fulfiller may throw in its destructor, when its loop has ended; there is nobody to tell.
  ~Job() noexcept {
    [[maybe_unused]] auto ended = kj::runCatchingExceptions([&] { auto gone = kj::mv(done); });
  }

  void run() {
    if (!done->isWaiting()) return;
    [[maybe_unused]] auto ended = kj::runCatchingExceptions([&] {
      done->rejectIfThrows([&] {
        work();
        done->fulfill();
      });
    });
  }
};

TextWorker::TextWorker() : thread_([this] { run_jobs(); }) {}

TextWorker::~TextWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

kj::Maybe<kj::Promise<void>> TextWorker::push(const std::string& tenant,
                                              std::function<void()> work) {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
  auto job = std::make_unique<Job>(tenant, std::move(work), kj::mv(pair.fulfiller));
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(jobs_, [](const auto& waiting) { return !waiting->done->isWaiting(); });
    const auto own = std::ranges::count(jobs_, tenant, [](const auto& j) { return j->tenant; });
    if (jobs_.size() + static_cast<size_t>(own) >= limits::text_jobs_max) return nullptr;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return kj::mv(pair.promise);
}

std::unique_ptr<TextWorker::Job> TextWorker::next_job() {
  auto next = std::ranges::find_if(jobs_, [&](const auto& j) { return j->tenant != last_tenant_; });
  if (next == jobs_.end()) next = jobs_.begin();
  auto job = std::move(*next);
  jobs_.erase(next);
  last_tenant_ = job->tenant;
  return job;
}

void TextWorker::run_jobs() {
  name_this_thread("text");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    auto job = next_job();
    lock.unlock();
    job->run();
    job.reset();
    lock.lock();
  }
}

}  // namespace outrider::gateway
