#include "gateway/event_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <thread>

#include "base/limits.hpp"

namespace outrider::gateway {
namespace {

using Level = schema::ClientStream::Level;

schema::StreamTokens tokens(int32_t id) {
  schema::StreamTokens event;
  event.tokens.push_back({id, std::nullopt});
  return event;
}

class FlagWaker final : public Waker {
 public:
  explicit FlagWaker(std::atomic<int>& count) : count_(count) {}
  void wake() override { ++count_; }

 private:
  std::atomic<int>& count_;
};

TEST(EventQueue, WakesItsReaderWithoutAnEvent) {
  EventQueue queue(1);
  std::atomic<int> woken = 0;
  queue.wake();  // nobody sleeps
  EXPECT_EQ(queue.arm(std::make_unique<FlagWaker>(woken)), nullptr);
  queue.wake();
  queue.wake();
  EXPECT_EQ(woken, 1);
  EXPECT_TRUE(queue.take().events.empty());
}

TEST(EventQueue, IsFullAtItsBoundAndNamesTheDrainedSource) {
  EventQueue queue(2);
  for (uint32_t i = 0; i + 1 < limits::client_stream_events_max; ++i) {
    EXPECT_EQ(queue.push(1, tokens(static_cast<int32_t>(i))), Level::flowing);
  }
  EXPECT_EQ(queue.push(0, tokens(7)), Level::flowing);
  EXPECT_EQ(queue.push(1, tokens(99)), Level::full);
  auto batch = queue.take();
  EXPECT_EQ(batch.events.size(), limits::client_stream_events_max + 1);
  EXPECT_EQ(batch.drained, std::vector<uint32_t>{1});
  EXPECT_TRUE(queue.take().drained.empty());
  EXPECT_EQ(queue.push(1, tokens(1)), Level::flowing);
}

TEST(EventQueue, AnswersGoneOnceTheReaderHasLeft) {
  EventQueue queue(1);
  queue.push(0, tokens(1));
  queue.close();
  EXPECT_EQ(queue.push(0, tokens(2)), Level::gone);
  EXPECT_TRUE(queue.take().events.empty());
}

TEST(EventQueue, WakesOncePerArming) {
  EventQueue queue(1);
  std::atomic<int> woken = 0;
  EXPECT_EQ(queue.arm(std::make_unique<FlagWaker>(woken)), nullptr);
  queue.push(0, tokens(1));
  queue.push(0, tokens(2));
  EXPECT_EQ(woken, 1);
  EXPECT_NE(queue.arm(std::make_unique<FlagWaker>(woken)), nullptr);  // events are there
}

/// Wakes a waiting thread.
class ThreadWaker final : public Waker {
 public:
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    bool ringing = false;
  };
  explicit ThreadWaker(Bell& bell) : bell_(bell) {}
  void wake() override {
    std::lock_guard lock(bell_.mutex);
    bell_.ringing = true;
    bell_.rung.notify_one();
  }

 private:
  Bell& bell_;
};

TEST(EventQueue, DeliversEverythingInOrderBetweenThreads) {
  constexpr uint32_t k_sources = 3;
  constexpr int32_t k_events = 5'000;
  EventQueue queue(k_sources);
  std::vector<std::thread> writers;
  for (uint32_t source = 0; source < k_sources; ++source) {
    writers.emplace_back([&queue, source] {
      for (int32_t i = 0; i < k_events; ++i) queue.push(source, tokens(i));
      queue.push(source, schema::StreamDone());
    });
  }
  std::vector<int32_t> next(k_sources);
  uint32_t done = 0;
  while (done < k_sources) {
    ThreadWaker::Bell bell;
    if (!queue.arm(std::make_unique<ThreadWaker>(bell))) {
      std::unique_lock lock(bell.mutex);
      bell.rung.wait(lock, [&] { return bell.ringing; });
    }
    for (auto& tagged : queue.take().events) {
      if (std::holds_alternative<schema::StreamDone>(tagged.event)) {
        EXPECT_EQ(next[tagged.source], k_events);
        ++done;
      } else {
        EXPECT_EQ(std::get<schema::StreamTokens>(tagged.event).tokens[0].id, next[tagged.source]++);
      }
    }
  }
  for (auto& writer : writers) writer.join();
}

}  // namespace
}  // namespace outrider::gateway
