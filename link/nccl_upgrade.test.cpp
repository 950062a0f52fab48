#include "link/nccl_upgrade.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>

#include "link/nccl_fixture.test.hpp"

namespace outrider::link {
namespace {

using testing_support::EmulatedNccl;
using testing_support::EmulatedWorld;
using testing_support::is_genuine;
using testing_support::k_no_deadline;
using testing_support::LinkPair;
using testing_support::message_for;
using testing_support::SharedClock;
using testing_support::Upgrades;

/// Only reached where a test moves the clock.
constexpr Duration k_patience = std::chrono::seconds(1);

class NcclUpgradeTest : public testing::Test {
 protected:
  NcclTerms terms(std::shared_ptr<Nccl> nccl) const {
    return {std::move(nccl), {settings_, clock_, counters_}, k_patience};
  }
  std::shared_ptr<Nccl> device(uint8_t number, uint32_t version = 22809) const {
    return std::make_shared<EmulatedNccl>(world_, number, version);
  }
  void connect() {
    tcp_ = testing_support::tcp_pair(testing_support::unix_pair(),
                                     testing_support::control_of({settings_, clock_, counters_}));
  }
  Upgrades upgrade(std::shared_ptr<Nccl> a, std::shared_ptr<Nccl> b) {
    connect();
    return testing_support::upgrade(tcp_, terms(std::move(a)), terms(std::move(b)));
  }
  /// Both ends have stayed on TCP, and that is as good as new.
  void expect_tcp(const Upgrades& made, const std::string& why) {
    ASSERT_TRUE(made.a) << made.a.error().message;
    ASSERT_TRUE(made.b) << made.b.error().message;
    EXPECT_EQ(made.a->link, tcp_.a);
    EXPECT_EQ(made.b->link, tcp_.b);
    EXPECT_NE(made.a->why_not.find(why), std::string::npos) << made.a->why_not;
    EXPECT_NE(made.b->why_not.find(why), std::string::npos) << made.b->why_not;
    expect_to_carry(*made.a->link, *made.b->link);
    world_->wait_for_ranks(0);
  }
  void expect_to_carry(TensorLink& from, TensorLink& to) {
    ASSERT_TRUE(from.send(0, message_for(3, 10'000), k_no_deadline));
    const auto message = to.receive(0, k_no_deadline);
    ASSERT_TRUE(message) << message.error().message;
    EXPECT_TRUE(is_genuine(*message));
  }

  LinkSettings settings_{.streams = 1, .window_bytes = 64 << 10};
  std::shared_ptr<SharedClock> clock_ = std::make_shared<SharedClock>();
  std::shared_ptr<LinkCounters> counters_ = std::make_shared<LinkCounters>();
  std::shared_ptr<EmulatedWorld> world_ = std::make_shared<EmulatedWorld>();
  LinkPair tcp_;
};

TEST_F(NcclUpgradeTest, TwoDevicesOfOneVersionMove) {
  const Upgrades made = upgrade(device(1), device(2));
  ASSERT_TRUE(made.a && made.b);
  EXPECT_EQ(made.a->why_not, "");
  EXPECT_EQ(made.b->why_not, "");
  EXPECT_NE(made.a->link, tcp_.a);
  expect_to_carry(*made.a->link, *made.b->link);
  expect_to_carry(*made.b->link, *made.a->link);
  const std::lock_guard lock(world_->mutex);
  EXPECT_EQ(world_->transfers, 2u + 2u) << "a byte each way before them";
}

TEST_F(NcclUpgradeTest, VersionsThatDifferStayOnTcp) {
  expect_tcp(upgrade(device(1, 22809), device(2, 22703)), "NCCL 22703, not 22809");
}

TEST_F(NcclUpgradeTest, OneDeviceForBothStaysOnTcp) {
  expect_tcp(upgrade(device(1), device(1)), "the same GPU");
}

TEST_F(NcclUpgradeTest, AnEndWithoutNcclStaysOnTcp) {
  expect_tcp(upgrade(device(1), nullptr), "not configured");
}

TEST_F(NcclUpgradeTest, AnEndThatHasNothingToOfferSaysNothing) {
  connect();
  const auto made = offer_nccl(tcp_.a, terms(nullptr));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->link, tcp_.a);
  EXPECT_NE(made->why_not, "");
  expect_to_carry(*tcp_.a, *tcp_.b);
}

TEST_F(NcclUpgradeTest, WindowsThatHoldNoOfferStayOnTcp) {
  settings_.window_bytes = cost_of(100);
  connect();
  const auto made = offer_nccl(tcp_.a, terms(device(1)));
  ASSERT_TRUE(made);
  EXPECT_NE(made->why_not, "");
}

TEST_F(NcclUpgradeTest, JoiningThatNeverEndsStaysOnTcpWhenItsTimeIsOver) {
  world_->set(&EmulatedWorld::joins, false);
  auto both = std::async(std::launch::async, [&] { return upgrade(device(1), device(2)); });
  world_->wait_for_ranks(2);  // both have begun
  clock_->advance(k_patience);
  expect_tcp(both.get(), "no communicator in time");
}

TEST_F(NcclUpgradeTest, WaysThatCarryNothingStayOnTcpWhenTheirTimeIsOver) {
  world_->set(&EmulatedWorld::moves, false);
  auto both = std::async(std::launch::async, [&] { return upgrade(device(1), device(2)); });
  world_->wait_for_probes(2);
  clock_->advance(k_patience);
  expect_tcp(both.get(), "no transfer in time");
}

TEST_F(NcclUpgradeTest, ANameThatIsNotWantedIsOfferedAgain) {
  const auto own = device(1);
  expect_tcp(upgrade(own, nullptr), "not configured");
  expect_tcp(upgrade(own, device(1)), "the same GPU");
  const Upgrades made = upgrade(own, device(2));
  ASSERT_TRUE(made.a && made.b);
  EXPECT_EQ(made.a->why_not, "");
  const std::lock_guard lock(world_->mutex);
  EXPECT_EQ(world_->ids, 1u);
}

TEST_F(NcclUpgradeTest, WarmingUpExchangesWithItselfOrSaysWhyNot) {
  EXPECT_TRUE(warm_up(*device(1), *clock_, k_patience));
  world_->set(&EmulatedWorld::fails, true);
  const auto cold = warm_up(*device(2), *clock_, k_patience);
  ASSERT_FALSE(cold);
  EXPECT_NE(cold.error().message.find("told to fail"), std::string::npos);
  world_->wait_for_ranks(0);
}

TEST_F(NcclUpgradeTest, AnErrorOfNcclStaysOnTcp) {
  world_->set(&EmulatedWorld::fails, true);
  expect_tcp(upgrade(device(1), device(2)), "told to fail");
}

TEST_F(NcclUpgradeTest, AnEndWhoseAbortsHangStaysOnTcp) {
  world_->set(&EmulatedWorld::aborts, false);
  const auto a = device(1), b = device(2);
  for (uint32_t i = 0; i < limits::link_nccl_retiring_max; ++i) {
    a->retire(a->join(*a->new_id(), {}).value());
  }
  const Upgrades made = upgrade(a, b);
  world_->set(&EmulatedWorld::aborts, true);
  expect_tcp(made, "aborted communicators do not end");
}

TEST_F(NcclUpgradeTest, AnEndThatGoesInTheMiddleIsAnError) {
  world_->set(&EmulatedWorld::joins, false);
  connect();
  auto offered =
      std::async(std::launch::async, [&] { return offer_nccl(tcp_.a, terms(device(1))); });
  ASSERT_TRUE(tcp_.b->receive(0, k_no_deadline));
  tcp_.b = nullptr;
  const auto made = offered.get();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::unavailable);
  EXPECT_NE(tcp_.a->end(), LinkEnd::none);
}

TEST_F(NcclUpgradeTest, AnOfferThatIsNoneIsAnErrorAndHangsUp) {
  connect();
  auto offered =
      std::async(std::launch::async, [&] { return offer_nccl(tcp_.a, terms(device(1))); });
  auto offer = tcp_.b->receive(0, k_no_deadline);
  ASSERT_TRUE(offer);
  offer->bytes = Bytes(testing_support::bytes_for(1, 7));
  EXPECT_FALSE(answer_nccl(tcp_.b, *offer, terms(device(2))));
  EXPECT_FALSE(offered.get());
}

TEST_F(NcclUpgradeTest, AnAnswerThatIsNoneIsAnErrorAndHangsUp) {
  connect();
  auto offered =
      std::async(std::launch::async, [&] { return offer_nccl(tcp_.a, terms(device(1))); });
  ASSERT_TRUE(tcp_.b->receive(0, k_no_deadline));
  ASSERT_TRUE(tcp_.b->send(0, message_for(7, 10), k_no_deadline));
  EXPECT_FALSE(offered.get());
  EXPECT_EQ(tcp_.b->receive(0, k_no_deadline).error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace outrider::link
