// NCCL itself, where a GPU or two and libnccl.so.2 are (bench/gpu_all).

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "link/nccl_fixture.test.hpp"

namespace outrider::link {
namespace {

using testing_support::is_genuine;
using testing_support::k_no_deadline;
using testing_support::LinkPair;
using testing_support::message_for;

LinkPair two_gpus(std::shared_ptr<Nccl> a, std::shared_ptr<Nccl> b) {
  const auto clock = std::make_shared<SteadyClock>();
  for (const auto& nccl : {a, b}) {
    const auto warm = warm_up(*nccl, *clock, std::chrono::seconds(30));
    OUTRIDER_CHECK(warm.ok(), warm.error().message);
  }
  return testing_support::nccl_pair({{}, clock, std::make_shared<LinkCounters>()}, std::move(a),
                                    std::move(b), NcclTerms().patience);
}

TEST(NcclOnAGpu, ARankThatIsAloneExchangesWithItself) {
  const auto nccl = open_nccl(0);
  OUTRIDER_SKIP_WITHOUT_NCCL(nccl);
  testing_support::expect_exchange_with_itself(**nccl);
}

TEST(NcclOnAGpu, TwoRanksOnOneStayOnTcp) {
  const auto a = open_nccl(0), b = open_nccl(0);
  OUTRIDER_SKIP_WITHOUT_NCCL(a);
  const LinkSetup setup{{}, std::make_shared<SteadyClock>(), std::make_shared<LinkCounters>()};
  const LinkPair tcp = testing_support::tcp_pair(testing_support::unix_pair(), setup);
  const auto made = testing_support::upgrade(tcp, {*a, setup}, {*b, setup});
  ASSERT_TRUE(made.a && made.b);
  EXPECT_EQ(made.b->why_not, "the same GPU");
}

TEST(NcclOnTwoGpus, MessagesOfAllSizesPassBothWays) {
  const auto a = open_nccl(0), b = open_nccl(1);
  OUTRIDER_SKIP_WITHOUT_NCCL(a);
  OUTRIDER_SKIP_WITHOUT_NCCL(b);
  const LinkPair pair = two_gpus(*a, *b);
  for (const size_t size : {size_t{0}, size_t{1}, k_nccl_slot_bytes + 1, size_t{8} << 20}) {
    ASSERT_TRUE(pair.a->send(0, message_for(size, size), k_no_deadline));
    ASSERT_TRUE(pair.b->send(0, message_for(size, size), k_no_deadline));
    for (const auto& end : {pair.a, pair.b}) {
      const auto message = end->receive(0, k_no_deadline);
      ASSERT_TRUE(message) << message.error().message;
      EXPECT_EQ(message->bytes.size(), size);
      EXPECT_TRUE(is_genuine(*message));
    }
  }
}

TEST(NcclOnTwoGpus, APeerThatGoesInMidTransferLeavesTheOtherForTheNext) {
  const auto a = open_nccl(0), b = open_nccl(1);
  OUTRIDER_SKIP_WITHOUT_NCCL(a);
  OUTRIDER_SKIP_WITHOUT_NCCL(b);
  for (int round = 0; round < 2; ++round) {
    LinkPair pair = two_gpus(*a, *b);
    ASSERT_TRUE(pair.a->send(0, message_for(1, 8 << 20), k_no_deadline));
    ASSERT_TRUE(pair.b->receive(0, k_no_deadline));
    ASSERT_TRUE(pair.a->send(0, message_for(2, 8 << 20), k_no_deadline));
    pair.b = nullptr;
    EXPECT_EQ(pair.a->receive(0, k_no_deadline).error().code, ErrorCode::unavailable);
  }
}

}  // namespace
}  // namespace outrider::link
