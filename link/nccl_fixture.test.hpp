#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "link/emulated_nccl.test.hpp"
#include "link/fixture.test.hpp"
#include "link/nccl_upgrade.hpp"

/// Pairs of links over NCCL, emulated or on GPUs.
namespace outrider::link::testing_support {

/// Only reached where a test fails.
inline constexpr TimePoint k_no_deadline = TimePoint::max();

/// Skips a test, by its name, on a machine without the GPUs for it or without NCCL.
#define OUTRIDER_SKIP_WITHOUT_NCCL(opened)                   \
  do {                                                       \
    if (!(opened)) GTEST_SKIP() << (opened).error().message; \
  } while (false)

/// The settings of a link to move, and counters of its own.
inline LinkSetup control_of(LinkSetup setup) {
  setup.counters = std::make_shared<LinkCounters>();
  return setup;
}

struct Upgrades {
  Result<NcclUpgrade> a, b;
};
/// Both parts of it; `a` makes an offer.
inline Upgrades upgrade(const LinkPair& links, const NcclTerms& a, const NcclTerms& b) {
  auto answered = std::async(std::launch::async, [&]() -> Result<NcclUpgrade> {
    const auto offer = links.b->receive(0, TimePoint::max());
    if (!offer) return offer.error();
    EXPECT_TRUE(is_nccl_offer(*offer));
    return answer_nccl(links.b, *offer, b);
  });
  auto offered = offer_nccl(links.a, a);
  return {std::move(offered), answered.get()};
}

inline LinkPair nccl_pair(const LinkSetup& setup, std::shared_ptr<Nccl> a, std::shared_ptr<Nccl> b,
                          Duration patience = std::chrono::seconds(1)) {
  Upgrades made = upgrade(tcp_pair(unix_pair(), control_of(setup)), {std::move(a), setup, patience},
                          {std::move(b), setup, patience});
  OUTRIDER_CHECK(made.a.ok() && made.b.ok());
  OUTRIDER_CHECK(made.a->why_not.empty() && made.b->why_not.empty(), made.a->why_not);
  return {std::move(made.a->link), std::move(made.b->link)};
}
inline LinkPair nccl_pair(const LinkSetup& setup) {
  const auto world = std::make_shared<EmulatedWorld>();
  return nccl_pair(setup, std::make_shared<EmulatedNccl>(world, 1),
                   std::make_shared<EmulatedNccl>(world, 2));
}

/// Until it has joined, or has failed.
inline NcclState joined(NcclRank& rank) {
  while (true) {
    if (const NcclState state = rank.state(); state != NcclState::busy) return state;
  }
}

/// One rank that is alone sends to itself.
inline void expect_exchange_with_itself(Nccl& nccl) {
  const auto id = nccl.new_id();
  ASSERT_TRUE(id) << id.error().message;
  auto made = nccl.join(*id, {.rank = 0, .ranks = 1});
  ASSERT_TRUE(made) << made.error().message;
  NcclRank& rank = **made;
  ASSERT_EQ(joined(rank), NcclState::ready) << rank.error();
  for (const size_t size : {size_t{1}, size_t{1'000}, k_nccl_slot_bytes}) {
    const auto bytes = bytes_for(size, size);
    std::copy(bytes.begin(), bytes.end(), rank.slot(0).begin());
    const NcclTransfer group[] = {{true, 0, size}, {false, 1, size}};
    rank.start(group);
    ASSERT_EQ(joined(rank), NcclState::ready) << rank.error();
    for (const NcclTransfer& transfer : group) rank.follow(transfer);
    for (const NcclTransfer& transfer : group) {
      while (!rank.is_through(transfer.slot)) {
        ASSERT_EQ(rank.state(), NcclState::ready) << rank.error();
      }
    }
    const auto came = rank.slot(1).first(size);
    EXPECT_TRUE(std::equal(came.begin(), came.end(), bytes.begin(), bytes.end())) << size;
  }
}

}  // namespace outrider::link::testing_support
