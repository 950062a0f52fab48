#include "link/nccl_transfers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "base/philox.hpp"
#include "link/emulated_nccl.test.hpp"
#include "link/fixture.test.hpp"
#include "link/nccl_fixture.test.hpp"

namespace outrider::link {
namespace {

using namespace std::literals;
using testing_support::bytes_for;
using testing_support::EmulatedNccl;
using testing_support::EmulatedWorld;

/// As the peer hears of it.
Header header_of(uint64_t tag, std::span<const std::byte> payload) {
  Header header;
  EXPECT_EQ(decode(encode({FrameKind::data, 0, 0, tag, payload.size(), payload}), header),
            LinkEnd::none);
  return header;
}

/// Both ends of a communicator, in virtual time.
class NcclTransfersTest : public testing::Test {
 protected:
  NcclTransfersTest() {
    for (uint8_t i = 0; i < 2; ++i) {
      nccl_[i] = std::make_shared<EmulatedNccl>(world_, i);
      auto rank = nccl_[i]->join({}, {.rank = i});
      ends_[i] = std::make_unique<NcclTransfers>(std::move(*rank));
    }
  }
  /// Payload number `tag`, from one end to the other, is next for both.
  void order(size_t from, uint64_t tag, size_t size) {
    const auto bytes = bytes_for(tag, size);
    ends_[from]->stage(bytes, now_);
    ends_[from]->order_send(now_);
    ends_[1 - from]->order_receive(header_of(tag, bytes), now_);
  }
  bool step(size_t end) {
    return ends_[end]->step(now_, [&](const Frame& frame) {
      const auto bytes = bytes_for(frame.value, frame.payload.size());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), frame.payload.begin()));
      tags_[end].push_back(frame.value);
    });
  }
  /// As often as the last of what is ordered needs, and more.
  void run() {
    for (int i = 0; i < 200; ++i) {
      for (size_t end = 0; end < 2; ++end) {
        if (ends_[end]) step(end);
      }
    }
  }

  TimePoint now_ = 100s;
  std::shared_ptr<EmulatedWorld> world_ = std::make_shared<EmulatedWorld>();
  std::shared_ptr<EmulatedNccl> nccl_[2];
  std::unique_ptr<NcclTransfers> ends_[2];
  std::vector<uint64_t> tags_[2];  ///< Of what came to each.
};

TEST_F(NcclTransfersTest, PayloadsOfBothDirectionsComeInTheirOneOrder) {
  constexpr uint64_t k_seed = 0x2cc1;
  Random random(k_seed);
  std::vector<uint64_t> wanted[2];
  for (uint64_t tag = 0; tag < 300; ++tag) {
    const size_t from = random.below(2);
    while (!ends_[from]->can_stage() || !ends_[1 - from]->can_receive()) run();
    order(from, tag, random.below(10) == 0 ? k_nccl_slot_bytes : 1 + random.below(5'000));
    wanted[1 - from].push_back(tag);
    if (random.below(3) == 0) step(random.below(2));
  }
  run();
  for (size_t end = 0; end < 2; ++end) {
    EXPECT_EQ(tags_[end], wanted[end]) << "seed " << k_seed;
    EXPECT_EQ(ends_[end]->end(), LinkEnd::none);
    EXPECT_TRUE(ends_[end]->is_idle());
  }
  EXPECT_EQ(world_->transfers, 300u);
}

TEST_F(NcclTransfersTest, SlotsBoundWhatIsUnderWay) {
  for (uint64_t tag = 0; tag < limits::link_nccl_slots; ++tag) {
    ASSERT_TRUE(ends_[0]->can_stage() && ends_[1]->can_receive());
    order(0, tag, 100);
  }
  EXPECT_FALSE(ends_[0]->can_stage());
  EXPECT_FALSE(ends_[1]->can_receive());
  EXPECT_TRUE(ends_[1]->can_stage() && ends_[0]->can_receive())
      << "the other direction has its own";
  run();
  EXPECT_TRUE(ends_[0]->can_stage());
  EXPECT_TRUE(ends_[1]->can_receive());
}

TEST_F(NcclTransfersTest, AnEmptyPayloadKeepsItsPlace) {
  const auto bytes = bytes_for(1, 50);
  ends_[1]->order_receive(header_of(1, bytes), now_);
  ends_[1]->order_receive(header_of(2, {}), now_);
  run();
  EXPECT_TRUE(tags_[1].empty());
  ends_[0]->stage(bytes, now_);
  ends_[0]->order_send(now_);
  run();
  EXPECT_EQ(tags_[1], (std::vector<uint64_t>{1, 2}));
}

TEST_F(NcclTransfersTest, EndsWithOrdersThatDifferStallAndNoticeIt) {
  for (const auto& end : ends_) {
    end->stage(bytes_for(1, 10), now_);
    end->order_send(now_);
  }
  ends_[0]->order_receive(header_of(1, bytes_for(1, 10)), now_);
  ends_[1]->order_receive(header_of(1, bytes_for(1, 10)), now_);
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::none);
  now_ += std::chrono::milliseconds(limits::link_silence_ms);
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::stalled);
  EXPECT_EQ(ends_[1]->end(), LinkEnd::stalled);
}

TEST_F(NcclTransfersTest, SizesThatDifferStall) {
  ends_[0]->stage(bytes_for(1, 10), now_);
  ends_[0]->order_send(now_);
  ends_[1]->order_receive(header_of(1, bytes_for(1, 11)), now_);
  run();
  now_ += std::chrono::milliseconds(limits::link_silence_ms);
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::stalled);
  EXPECT_EQ(ends_[1]->end(), LinkEnd::stalled);
  EXPECT_TRUE(tags_[1].empty());
}

TEST_F(NcclTransfersTest, APeerThatIsGoneStallsTheOther) {
  order(0, 1, 10);
  ends_[1].reset();
  run();
  now_ += std::chrono::milliseconds(limits::link_silence_ms - 1);
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::none);
  now_ += 1ms;
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::stalled);
}

TEST_F(NcclTransfersTest, APayloadThatNeverGetsItsTurnStalls) {
  ends_[1]->stage(bytes_for(1, 10), now_);
  now_ += std::chrono::milliseconds(limits::link_silence_ms);
  run();
  EXPECT_EQ(ends_[1]->end(), LinkEnd::stalled);
  EXPECT_EQ(ends_[0]->end(), LinkEnd::none) << "it has nothing to wait for";
}

TEST_F(NcclTransfersTest, WhatMovesDoesNotStall) {
  for (uint64_t tag = 0; tag < 5; ++tag) {
    order(0, tag, 10);
    now_ += std::chrono::milliseconds(limits::link_silence_ms - 1);
    run();
  }
  EXPECT_EQ(tags_[1].size(), 5u);
  EXPECT_EQ(ends_[0]->end(), LinkEnd::none);
}

TEST_F(NcclTransfersTest, ADamagedPayloadIsNotHandedOut) {
  world_->set(&EmulatedWorld::damages, 1u);
  order(0, 1, 10);
  order(0, 2, 10);
  run();
  EXPECT_EQ(ends_[1]->end(), LinkEnd::checksum);
  EXPECT_TRUE(tags_[1].empty());
}

TEST_F(NcclTransfersTest, AnErrorOfNcclEndsThemEvenWithNothingUnderWay) {
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::none);
  world_->set(&EmulatedWorld::fails, true);
  run();
  EXPECT_EQ(ends_[0]->end(), LinkEnd::device);
}

TEST(EmulatedNccl, ARankThatIsAloneExchangesWithItself) {
  EmulatedNccl nccl(std::make_shared<EmulatedWorld>(), 1);
  testing_support::expect_exchange_with_itself(nccl);
}

}  // namespace
}  // namespace outrider::link
