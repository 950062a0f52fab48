// What every implementation of TensorLink promises. One that comes adds a maker of pairs to
// `Makers`.

#include "link/tensor_link.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/philox.hpp"
#include "link/fixture.test.hpp"
#include "link/nccl_fixture.test.hpp"

namespace outrider::link {
namespace {

using namespace std::literals;
using testing_support::is_genuine;
using testing_support::LinkPair;
using testing_support::message_for;
using testing_support::SharedClock;

constexpr LinkSettings k_small{.streams = 3, .window_bytes = 64 << 10, .frame_bytes = 4 << 10};
constexpr TimePoint k_past{0};
/// Only reached where a test fails.
constexpr TimePoint k_never = TimePoint::max();

struct TcpOverUnixPair {
  static LinkPair make(const LinkSetup& setup) {
    return testing_support::tcp_pair(testing_support::unix_pair(), setup);
  }
};
struct TcpOverLoopback {
  static LinkPair make(const LinkSetup& setup) {
    return testing_support::tcp_pair(testing_support::loopback_pair(), setup);
  }
};
struct NcclEmulated {
  static LinkPair make(const LinkSetup& setup) { return testing_support::nccl_pair(setup); }
};

template <class Maker>
class AnyLink : public testing::Test {
 protected:
  void open(const LinkSettings& settings = k_small) {
    pair_ = Maker::make({settings, clock_, counters_});
  }
  TensorLink& a() { return *pair_.a; }
  TensorLink& b() { return *pair_.b; }

  std::shared_ptr<SharedClock> clock_ = std::make_shared<SharedClock>();
  std::shared_ptr<LinkCounters> counters_ = std::make_shared<LinkCounters>();
  LinkPair pair_;
};

using Makers = testing::Types<TcpOverUnixPair, TcpOverLoopback, NcclEmulated>;
TYPED_TEST_SUITE(AnyLink, Makers);

TYPED_TEST(AnyLink, AMessageOfAnySizeComesAsItWasSent) {
  this->open();
  const size_t frame = k_small.frame_bytes, most = k_small.message_bytes_max();
  uint64_t tag = 1;
  for (const size_t size : {size_t{0}, size_t{1}, frame - 1, frame, frame + 1, 3 * frame, most}) {
    ASSERT_TRUE(this->a().send(2, message_for(tag, size), k_never));
    const auto message = this->b().receive(2, k_never);
    ASSERT_TRUE(message) << message.error().message;
    EXPECT_EQ(message->tag, tag++);
    EXPECT_EQ(message->bytes.size(), size);
    EXPECT_TRUE(is_genuine(*message));
  }
}

TYPED_TEST(AnyLink, TheLargestMessageThatThereMayBePassesDefaultSettings) {
  this->open({});
  ASSERT_TRUE(this->a().send(0, message_for(1, limits::link_message_bytes_max), k_never));
  const auto message = this->b().receive(0, k_never);
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(message->bytes.size(), limits::link_message_bytes_max);
  EXPECT_TRUE(is_genuine(*message));
}

TYPED_TEST(AnyLink, AViewIsSentFromWhereItIsAndKeptAliveAsLongAsThat) {
  this->open();
  auto owner = std::make_shared<std::vector<std::byte>>(testing_support::bytes_for(7, 10'000));
  const std::weak_ptr<std::vector<std::byte>> watch = owner;
  const std::span<const std::byte> view = *owner;
  ASSERT_TRUE(this->a().send(0, {7, Bytes(std::move(owner), view)}, k_never));
  const auto message = this->b().receive(0, k_never);
  ASSERT_TRUE(message);
  EXPECT_TRUE(is_genuine(*message));
  this->pair_.a.reset();
  EXPECT_TRUE(watch.expired());
}

TYPED_TEST(AnyLink, EverythingComesOnceAndInOrderOnAllStreamsBothWaysAtOnce) {
  this->open();
  constexpr uint64_t k_messages = 150;
  std::vector<std::thread> threads;
  const auto run = [&](TensorLink& from, TensorLink& to, uint32_t stream, uint64_t seed) {
    threads.emplace_back([&from, stream, seed] {
      Random random(seed);
      for (uint64_t i = 0; i < k_messages; ++i) {
        const auto sent = from.send(stream, message_for(i, random.below(20'000)), k_never);
        ASSERT_TRUE(sent) << "seed " << seed << ": " << sent.error().message;
      }
    });
    threads.emplace_back([&to, stream, seed] {
      Random random(seed);
      for (uint64_t i = 0; i < k_messages; ++i) {
        const auto message = to.receive(stream, k_never);
        ASSERT_TRUE(message) << "seed " << seed << ": " << message.error().message;
        ASSERT_EQ(message->tag, i) << "seed " << seed;
        ASSERT_EQ(message->bytes.size(), random.below(20'000)) << "seed " << seed;
        ASSERT_TRUE(is_genuine(*message)) << "seed " << seed;
      }
    });
  };
  for (uint32_t stream = 0; stream < k_small.streams; ++stream) {
    run(this->a(), this->b(), stream, 10 + stream);
    run(this->b(), this->a(), stream, 20 + stream);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(this->counters_->messages_sent, 2 * k_small.streams * k_messages);
  EXPECT_EQ(this->counters_->messages_received, 2 * k_small.streams * k_messages);
  EXPECT_EQ(this->counters_->bytes_sent, this->counters_->bytes_received);
}

TYPED_TEST(AnyLink, AReaderThatTakesNothingStopsItsOwnStreamOnly) {
  this->open();
  uint64_t taken = 0;
  for (int i = 0; i < 2'000; ++i) {
    const auto sent = this->a().send(0, message_for(taken, 1'000), k_past);
    if (sent) {
      ++taken;
    } else {
      ASSERT_EQ(sent.error().code, ErrorCode::overloaded);
    }
  }
  EXPECT_LE(taken * cost_of(1'000), 2 * k_small.window_bytes);
  for (uint64_t tag = 0; tag < 200; ++tag) {
    ASSERT_TRUE(this->a().send(1, message_for(tag, 5'000), k_never));
    const auto message = this->b().receive(1, k_never);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->tag, tag);
  }
  for (uint64_t tag = 0; tag < taken; ++tag) {
    const auto message = this->b().receive(0, k_never);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->tag, tag);
    EXPECT_TRUE(is_genuine(*message));
  }
}

TYPED_TEST(AnyLink, WrongArgumentsAreRefusedAndTheLinkLives) {
  this->open();
  const auto error_of = [](const auto& result) {
    return result ? ErrorCode::internal : result.error().code;
  };
  EXPECT_EQ(error_of(this->a().send(3, message_for(1, 1), k_never)), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of(this->a().receive(3, k_never)), ErrorCode::invalid_argument);
  const size_t much = k_small.message_bytes_max() + 1;
  EXPECT_EQ(error_of(this->a().send(0, message_for(1, much), k_never)), ErrorCode::too_large);
  ASSERT_TRUE(this->a().send(0, message_for(2, 10), k_never));
  const auto message = this->b().receive(0, k_never);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->tag, 2u);
}

TYPED_TEST(AnyLink, WhoWaitsForAMessageIsToldWhenTheDeadlinePasses) {
  this->open();
  const auto at_once = this->b().receive(0, k_past);
  ASSERT_FALSE(at_once);
  EXPECT_EQ(at_once.error().code, ErrorCode::deadline_exceeded);
  auto later = std::async(std::launch::async, [this, deadline = this->clock_->now() + 1s] {
    return this->b().receive(0, deadline);
  });
  this->clock_->advance(2s);
  const auto result = later.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(this->b().end(), LinkEnd::none);
}

TYPED_TEST(AnyLink, WhoWaitsForAPlaceIsToldWhenTheDeadlinePasses) {
  this->open();
  // Nobody reads: two windows at most are taken.
  const TimePoint deadline = this->clock_->now() + 1s;
  auto sender = std::async(std::launch::async, [this, deadline] {
    while (true) {
      const auto sent = this->a().send(0, message_for(1, 30'000), deadline);
      if (!sent) return sent.error().code;
    }
  });
  this->clock_->advance(2s);
  EXPECT_EQ(sender.get(), ErrorCode::overloaded);
}

TYPED_TEST(AnyLink, AnEndThatClosesWakesWhoWaitsOnEitherSide) {
  this->open();
  std::vector<std::future<ErrorCode>> waiting;
  for (TensorLink* link : {&this->a(), &this->b()}) {
    waiting.push_back(std::async(std::launch::async, [link] {
      const auto message = link->receive(0, k_never);
      return message ? ErrorCode::internal : message.error().code;
    }));
  }
  waiting.push_back(std::async(std::launch::async, [this] {
    while (true) {
      const auto sent = this->a().send(1, message_for(1, 30'000), k_never);
      if (!sent) return sent.error().code;
    }
  }));
  ASSERT_TRUE(this->b().receive(1, k_never));
  this->a().close();
  for (auto& code : waiting) EXPECT_EQ(code.get(), ErrorCode::unavailable);
  EXPECT_EQ(this->a().end(), LinkEnd::closed);
  EXPECT_TRUE(this->b().end() == LinkEnd::closed || this->b().end() == LinkEnd::cut);
}

TYPED_TEST(AnyLink, APeerThatDiesInMidTransferLeavesWholeMessagesOrNone) {
  this->open();
  std::vector<std::thread> senders;
  for (uint32_t stream = 0; stream < k_small.streams; ++stream) {
    senders.emplace_back([this, stream] {
      for (uint64_t tag = 0;; ++tag) {
        const auto sent = this->a().send(stream, message_for(tag, 50'000), k_never);
        if (sent) continue;
        EXPECT_EQ(sent.error().code, ErrorCode::unavailable);
        return;
      }
    });
  }
  std::vector<uint64_t> next(k_small.streams);
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t stream = i % k_small.streams;
    const auto message = this->b().receive(stream, k_never);
    ASSERT_TRUE(message);
    EXPECT_EQ(message->tag, next[stream]++);
    EXPECT_TRUE(is_genuine(*message));
  }
  this->pair_.b.reset();
  for (std::thread& sender : senders) sender.join();
  EXPECT_TRUE(this->a().end() == LinkEnd::closed || this->a().end() == LinkEnd::cut);
  // The reader of a direction that was cut gets nothing of what had begun.
  EXPECT_EQ(this->a().receive(0, k_never).error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace outrider::link
