#include "gateway/text_worker.hpp"

namespace outrider::gateway {

struct TextWorker::Job {
  std::function<void()> work;
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> done;

  Job(std::function<void()> todo, kj::Own<kj::CrossThreadPromiseFulfiller<void>> fulfiller)
      : work(std::move(todo)), done(kj::mv(fulfiller)) {}
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

kj::Maybe<kj::Promise<void>> TextWorker::push(std::function<void()> work) {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
  auto job = std::make_unique<Job>(std::move(work), kj::mv(pair.fulfiller));
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= limits::text_jobs_max) return nullptr;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return kj::mv(pair.promise);
}

void TextWorker::run_jobs() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job->run();
    job.reset();
    lock.lock();
  }
}

}  // namespace outrider::gateway
