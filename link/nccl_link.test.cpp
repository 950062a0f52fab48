#include "link/nccl_link.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "link/nccl_fixture.test.hpp"

namespace outrider::link {
namespace {

using namespace std::literals;
using testing_support::bytes_for;
using testing_support::EmulatedNccl;
using testing_support::EmulatedWorld;
using testing_support::is_genuine;
using testing_support::k_no_deadline;
using testing_support::LinkPair;
using testing_support::message_for;
using testing_support::SharedClock;

constexpr LinkSettings k_nccl_settings{
    .streams = 2, .window_bytes = 64 << 10, .frame_bytes = 4 << 10};

/// A link whose peer is a control link and a rank, both played by hand.
class NcclLinkTest : public testing::Test {
 protected:
  void open(bool leads) {
    LinkSetup between = testing_support::control_of(setup());
    between.clock = std::make_shared<SharedClock>();  // its ends do not tire of each other
    LinkPair control = testing_support::tcp_pair(testing_support::unix_pair(), between);
    peer_ = std::move(control.b);
    const auto id = nccl_->new_id();
    auto rank = nccl_->join(*id, {.rank = leads ? 0u : 1u});
    auto peers = nccl_->join(*id, {.rank = leads ? 1u : 0u});
    peer_rank_ = std::move(*peers);
    ASSERT_EQ(testing_support::joined(**rank), NcclState::ready);
    ASSERT_EQ(testing_support::joined(*peer_rank_), NcclState::ready);
    auto made = NcclLink::open({std::move(control.a), nccl_, std::move(*rank), leads}, setup());
    ASSERT_TRUE(made);
    link_ = std::move(*made);
  }
  LinkSetup setup() const { return {k_nccl_settings, clock_, counters_}; }

  Result<void> say(uint64_t tag, std::vector<std::byte> bytes, TimePoint by = k_no_deadline) {
    return peer_->send(0, {tag, Bytes(std::move(bytes))}, by);
  }
  /// Only its header.
  Result<void> say(Frame frame, TimePoint by = k_no_deadline) {
    frame.sequence = said_++;
    const HeaderBytes header = encode(frame);
    return say(k_nccl_header_tag, {header.begin(), header.end()}, by);
  }
  void greet() {
    EXPECT_TRUE(
        say({FrameKind::hello, k_nccl_settings.streams, 0, k_nccl_settings.window_bytes, 0, {}}));
  }
  void expect_end(LinkEnd reason) {
    EXPECT_EQ(link_->receive(1, k_no_deadline).error().code, ErrorCode::unavailable);
    EXPECT_EQ(link_->end(), reason) << to_string(link_->end());
    EXPECT_EQ(counters_->ended[static_cast<size_t>(reason)], 1u);
    world_->wait_for_ranks(1);  // its own was given back
  }

  std::shared_ptr<SharedClock> clock_ = std::make_shared<SharedClock>();
  std::shared_ptr<LinkCounters> counters_ = std::make_shared<LinkCounters>();
  std::shared_ptr<EmulatedWorld> world_ = std::make_shared<EmulatedWorld>();
  std::shared_ptr<EmulatedNccl> nccl_ = std::make_shared<EmulatedNccl>(world_, 1);
  std::shared_ptr<TensorLink> peer_;
  std::unique_ptr<NcclRank> peer_rank_;
  std::unique_ptr<TensorLink> link_;
  uint64_t said_ = 0;
};

TEST_F(NcclLinkTest, AWordThatThereIsNotEndsIt) {
  open(true);
  EXPECT_TRUE(say(9, {}));
  expect_end(LinkEnd::format);
}

TEST_F(NcclLinkTest, AWordLargerThanAnyIsNotHeld) {
  open(true);
  EXPECT_TRUE(say(k_nccl_header_tag, bytes_for(1, 10'000)));
  expect_end(LinkEnd::format);
}

TEST_F(NcclLinkTest, AGoIsForWhoFollowsAndHasAsked) {
  open(true);
  EXPECT_TRUE(say(k_nccl_go_tag, {}));
  expect_end(LinkEnd::format);
}

TEST_F(NcclLinkTest, AGoForNothingEndsIt) {
  open(false);
  EXPECT_TRUE(say(k_nccl_go_tag, {}));
  expect_end(LinkEnd::format);
}

TEST_F(NcclLinkTest, AHeaderThatComesAgainEndsIt) {
  open(false);
  greet();
  said_ = 0;
  greet();
  expect_end(LinkEnd::sequence);
}

TEST_F(NcclLinkTest, ADamagedHeaderEndsIt) {
  open(false);
  HeaderBytes header = encode({});
  header[20] ^= std::byte{1};
  EXPECT_TRUE(say(k_nccl_header_tag, {header.begin(), header.end()}));
  expect_end(LinkEnd::checksum);
}

TEST_F(NcclLinkTest, APeerWithOtherSettingsIsRefused) {
  open(false);
  EXPECT_TRUE(say({FrameKind::hello, 1, 0, k_nccl_settings.window_bytes, 0, {}}));
  expect_end(LinkEnd::settings);
}

TEST_F(NcclLinkTest, APeerThatSendsMoreThanItsCreditIsCutOff) {
  open(false);
  greet();
  const uint64_t fit = k_nccl_settings.window_bytes / cost_of(0);
  for (uint64_t i = 0; i <= fit; ++i) EXPECT_TRUE(say({FrameKind::data, 0, 0, i, 0, {}}));
  expect_end(LinkEnd::credit);
}

TEST_F(NcclLinkTest, WhatIsAnnouncedAndNeverSentTakesNoMemory) {
  open(false);
  greet();
  const auto bytes = bytes_for(1, 100);
  const uint64_t waiting = 2 * k_nccl_settings.window_bytes / cost_of(k_header_bytes);
  const uint64_t most = limits::link_nccl_slots + 2 + k_nccl_inbox_messages + waiting;
  uint64_t taken = 0;
  for (uint64_t i = 0; i < 2 * most; ++i) {
    if (say({FrameKind::data, 0, 0, i, 100, bytes}, TimePoint{0})) ++taken;
  }
  EXPECT_LE(taken, most);
  EXPECT_EQ(link_->end(), LinkEnd::none);
}

TEST_F(NcclLinkTest, APeerThatNeverSendsStallsIt) {
  open(false);
  greet();
  EXPECT_TRUE(say({FrameKind::data, 0, 0, 1, 100, bytes_for(1, 100)}));
  auto waiting = std::async(std::launch::async, [&] { return link_->receive(0, k_no_deadline); });
  // Once may be before it has heard of the payload.
  do {
    clock_->advance(std::chrono::milliseconds(limits::link_silence_ms));
  } while (waiting.wait_for(20ms) != std::future_status::ready);
  EXPECT_EQ(waiting.get().error().code, ErrorCode::unavailable);
  EXPECT_TRUE(link_->end() == LinkEnd::silent || link_->end() == LinkEnd::stalled);
}

TEST_F(NcclLinkTest, APeerThatIsKilledInMidTransferLeavesTheOtherServing) {
  for (const bool leads : {true, false}) {
    said_ = 0;
    open(leads);
    greet();
    if (!leads) {  // a payload that hangs in NCCL already
      EXPECT_TRUE(say({FrameKind::data, 0, 0, 1, 100, bytes_for(1, 100)}));
    }
    auto sender = std::async(std::launch::async, [&] {
      while (true) {
        const auto sent = link_->send(0, message_for(1, 30'000), k_no_deadline);
        if (!sent) return sent.error().code;
      }
    });
    auto reader = std::async(std::launch::async,
                             [&] { return link_->receive(0, k_no_deadline).error().code; });
    peer_ = nullptr;  // its rank says nothing
    EXPECT_EQ(sender.get(), ErrorCode::unavailable);
    EXPECT_EQ(reader.get(), ErrorCode::unavailable);
    EXPECT_TRUE(link_->end() == LinkEnd::cut || link_->end() == LinkEnd::closed);
    world_->wait_for_ranks(1);
    peer_rank_ = nullptr;
    // The next one is as good as new.
    const LinkPair again =
        testing_support::nccl_pair(setup(), nccl_, std::make_shared<EmulatedNccl>(world_, 2));
    ASSERT_TRUE(again.a->send(1, message_for(5, 9'000), k_no_deadline));
    const auto message = again.b->receive(1, k_no_deadline);
    ASSERT_TRUE(message);
    EXPECT_TRUE(is_genuine(*message));
  }
}

TEST_F(NcclLinkTest, AnAbortThatHangsHoldsUpNobodyAndIsBounded) {
  world_->set(&EmulatedWorld::aborts, false);
  for (uint32_t retired = 0; retired < limits::link_nccl_retiring_max; retired += 2) {
    open(true);
    link_ = nullptr;
    nccl_->retire(std::move(peer_rank_));
  }
  const auto refused = nccl_->join({}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
  world_->set(&EmulatedWorld::aborts, true);
  world_->wait_for_ranks(0);
}

/// Both ends, over an emulated world that a test may spoil.
class NcclPairTest : public testing::Test {
 protected:
  void SetUp() override {
    pair_ = testing_support::nccl_pair(
        {k_nccl_settings, std::make_shared<SharedClock>(), counters_},
        std::make_shared<EmulatedNccl>(world_, 1), std::make_shared<EmulatedNccl>(world_, 2));
  }

  std::shared_ptr<LinkCounters> counters_ = std::make_shared<LinkCounters>();
  std::shared_ptr<EmulatedWorld> world_ = std::make_shared<EmulatedWorld>();
  LinkPair pair_;
};

TEST_F(NcclPairTest, PayloadsGoOverNcclAFrameEach) {
  ASSERT_TRUE(pair_.a->send(0, message_for(1, 10'000), k_no_deadline));
  ASSERT_TRUE(pair_.b->send(1, message_for(2, 4'096), k_no_deadline));
  ASSERT_TRUE(pair_.b->receive(0, k_no_deadline));
  ASSERT_TRUE(pair_.a->receive(1, k_no_deadline));
  const std::lock_guard lock(world_->mutex);
  EXPECT_EQ(world_->transfers, 2u + 4u) << "a byte each way before them";
}

TEST_F(NcclPairTest, APayloadThatIsNotWhatWasSentEndsIt) {
  world_->set(&EmulatedWorld::damages, 1u);
  ASSERT_TRUE(pair_.a->send(0, message_for(1, 10'000), k_no_deadline));
  EXPECT_EQ(pair_.b->receive(0, k_no_deadline).error().code, ErrorCode::unavailable);
  EXPECT_EQ(pair_.b->end(), LinkEnd::checksum);
  world_->wait_for_ranks(0);  // the other has heard of it
  EXPECT_EQ(counters_->ended[static_cast<size_t>(LinkEnd::checksum)], 1u);
}

TEST_F(NcclPairTest, AnErrorOfNcclEndsBoth) {
  world_->set(&EmulatedWorld::fails, true);
  EXPECT_EQ(pair_.a->receive(0, k_no_deadline).error().code, ErrorCode::unavailable);
  EXPECT_EQ(pair_.b->receive(0, k_no_deadline).error().code, ErrorCode::unavailable);
  EXPECT_GE(counters_->ended[static_cast<size_t>(LinkEnd::device)], 1u);
}

TEST_F(NcclPairTest, ACommunicatorThatIsLongBusyCarriesAllTheSame) {
  world_->set(&EmulatedWorld::busy_looks, 40u);
  for (uint64_t tag = 0; tag < 20; ++tag) {
    ASSERT_TRUE(pair_.a->send(0, message_for(tag, 6'000), k_no_deadline));
    ASSERT_TRUE(pair_.b->send(0, message_for(tag, 6'000), k_no_deadline));
  }
  for (uint64_t tag = 0; tag < 20; ++tag) {
    for (const auto& end : {pair_.a, pair_.b}) {
      const auto message = end->receive(0, k_no_deadline);
      ASSERT_TRUE(message);
      EXPECT_EQ(message->tag, tag);
      EXPECT_TRUE(is_genuine(*message));
    }
  }
}

}  // namespace
}  // namespace outrider::link
