#include "actors/line_threads.hpp"

#include <condition_variable>
#include <thread>
#include <utility>

namespace outrider::actors {
namespace {

class SystemThreads final : public LineThreads {
 public:
  std::unique_ptr<Thread> start(std::function<void()> run) override {
    return std::make_unique<SystemThread>(std::move(run));
  }
  std::unique_ptr<Condition> condition() override { return std::make_unique<SystemCondition>(); }

 private:
  class SystemThread final : public Thread {
   public:
    explicit SystemThread(std::function<void()> run) : thread_(std::move(run)) {}
    ~SystemThread() override { thread_.join(); }

   private:
    std::thread thread_;
  };
  class SystemCondition final : public Condition {
   public:
    void notify() override { condition_.notify_all(); }
    void wait_for(std::unique_lock<std::mutex>& lock, Duration most) override {
      condition_.wait_for(lock, most);
    }

   private:
    std::condition_variable condition_;
  };
};

}  // namespace

std::shared_ptr<LineThreads> system_threads() {
  return std::make_shared<SystemThreads>();
}

}  // namespace outrider::actors
