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
  auto result = worker.run(limits::inline_text_bytes_max, Number([&] {
                             ran_on = std::this_thread::get_id();
                             return 1;
                           }));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(TextWorker, LongTextsWaitInABoundedQueueAndRunInOrderUnlessNobodyWaits) {
  auto io = kj::setupAsyncIo();
  TextWorker worker;
  std::promise<void> started, gate;
  auto first = worker.run(k_long, Number([&] {
                            started.set_value();
                            gate.get_future().wait();
                            return -1;
                          }));
  started.get_future().wait();
  std::vector<int> order;
  std::vector<std::optional<kj::Promise<kj::Own<Result<int>>>>> waiting;
  for (int i = 0; i < static_cast<int>(limits::text_jobs_max); ++i) {
    waiting.emplace_back(worker.run(k_long, Number([&order, i] {
                                      order.push_back(i);
                                      return i;
                                    })));
  }
  auto refused = worker.run(k_long, Number([] { return 0; })).wait(io.waitScope);
  ASSERT_FALSE(refused->ok());
  EXPECT_EQ(refused->error().code, ErrorCode::overloaded);
  waiting[1].reset();
  gate.set_value();
  EXPECT_EQ(**first.wait(io.waitScope), -1);
  std::vector<int> expected;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (i == 1) continue;
    expected.push_back(static_cast<int>(i));
    EXPECT_EQ(**waiting[i]->wait(io.waitScope), static_cast<int>(i));
  }
  EXPECT_EQ(order, expected);
}

TEST(TextWorker, AnExceptionInAJobIsItsPromises) {
  auto io = kj::setupAsyncIo();
  TextWorker worker;
  auto broken = worker.run(k_long, Number([]() -> Result<int> { throw std::bad_alloc(); }));
  EXPECT_TRUE(kj::runCatchingExceptions([&] { EXPECT_FALSE(broken.wait(io.waitScope)->ok()); }) !=
              nullptr);
  EXPECT_EQ(**worker.run(k_long, Number([] { return 2; })).wait(io.waitScope), 2);
}

}  // namespace
}  // namespace outrider::gateway
