#include "gateway/text_worker.hpp"

#include <gtest/gtest.h>
#include <kj/async-io.h>

#include <future>
#include <optional>
#include <vector>

namespace outrider::gateway {
namespace {

constexpr size_t k_long = limits::inline_text_bytes_max + 1;
using Number = std::function<Result<int>()>;

TEST(TextWorker, ShortTextsRunAtOnceOnTheCallersThread) {
  auto io = kj::setupAsyncIo();
  TextWorker worker;
  std::thread::id ran_on;
  auto result = worker.run("", limits::inline_text_bytes_max, Number([&] {
                             ran_on = std::this_thread::get_id();
                             return 1;
                           }));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

/// A worker that is busy until the test opens the gate, and the order of the jobs behind it.
struct BusyWorker {
  BusyWorker() {
    first.emplace(worker.run("gate", k_long, Number([this] {
                               started.set_value();
                               gate.get_future().wait();
                               return -1;
                             })));
    started.get_future().wait();
  }
  using Waiting = std::optional<kj::Promise<kj::Own<Result<int>>>>;
  Waiting push(const std::string& tenant, int number) {
    return worker.run(tenant, k_long, Number([this, number] {
                        order.push_back(number);
                        return number;
                      }));
  }
  bool refuses(const std::string& tenant) {
    auto answer = push(tenant, -1);
    if (!answer->poll(io.waitScope)) return false;
    auto result = answer->wait(io.waitScope);
    return !result->ok() && result->error().code == ErrorCode::overloaded;
  }

  kj::AsyncIoContext io = kj::setupAsyncIo();
  std::promise<void> started, gate;
  std::vector<int> order;
  TextWorker worker;
  Waiting first;
};

TEST(TextWorker, LongTextsWaitInABoundedQueueAndRunInOrderUnlessNobodyWaits) {
  BusyWorker busy;
  std::vector<BusyWorker::Waiting> waiting;
  for (int i = 0; i < static_cast<int>(limits::text_jobs_max / 2); ++i) {
    waiting.push_back(busy.push("a", i));
  }
  EXPECT_TRUE(busy.refuses("a"));
  waiting[1].reset();
  waiting.push_back(busy.push("a", 100));
  EXPECT_TRUE(busy.refuses("a")) << "the place was that of one job";
  busy.gate.set_value();
  std::vector<int> expected;
  for (auto& job : waiting) {
    if (job) expected.push_back(**(*job).wait(busy.io.waitScope));
  }
  EXPECT_EQ(busy.order, expected);
  EXPECT_EQ(expected.size(), limits::text_jobs_max / 2);
}

TEST(TextWorker, ATenantLeavesRoomForOthersAndTheyTakeTurns) {
  BusyWorker busy;
  std::vector<BusyWorker::Waiting> waiting;
  for (int i = 0; i < static_cast<int>(limits::text_jobs_max / 2); ++i) {
    waiting.push_back(busy.push("greedy", i));
  }
  EXPECT_TRUE(busy.refuses("greedy"));
  waiting.push_back(busy.push("b", 100));
  waiting.push_back(busy.push("b", 101));
  waiting.push_back(busy.push("c", 102));
  busy.gate.set_value();
  for (auto& job : waiting) job->wait(busy.io.waitScope);
  busy.order.resize(7);
  EXPECT_EQ(busy.order, (std::vector<int>{0, 100, 1, 101, 2, 102, 3}));
}

TEST(TextWorker, AnExceptionInAJobIsItsPromises) {
  auto io = kj::setupAsyncIo();
  TextWorker worker;
  auto broken = worker.run("", k_long, Number([]() -> Result<int> { throw std::bad_alloc(); }));
  EXPECT_TRUE(kj::runCatchingExceptions([&] { EXPECT_FALSE(broken.wait(io.waitScope)->ok()); }) !=
              nullptr);
  EXPECT_EQ(**worker.run("", k_long, Number([] { return 2; })).wait(io.waitScope), 2);
}

}  // namespace
}  // namespace outrider::gateway
