#include "model/fair_share.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace outrider::model {
namespace {

/// Each of `waiting` wants more than it gets, each of `content` gets all it wants.
void step(FairShare& share, std::initializer_list<const char*> waiting,
          std::initializer_list<const char*> content = {}) {
  share.begin_step();
  for (const char* tenant : waiting) share.want(tenant, true);
  for (const char* tenant : content) share.want(tenant, false);
  share.settle();
}

TEST(FairShare, ANewcomerStartsWhereAnEqualShareWouldBe) {
  FairShare share;
  step(share, {"a", "b"});
  share.charge("a", 100);
  share.charge("b", 40);
  step(share, {"a", "b", "c"});
  EXPECT_EQ(share.of("c").served, 70u);
  EXPECT_LT(share.of("a").number, share.of("c").number);
}

TEST(FairShare, APauseSavesUpNoCredit) {
  FairShare share;
  step(share, {"a", "parked"});
  for (int i = 0; i < 10; ++i) {
    share.charge("a", 100);
    step(share, {"a"});
  }
  step(share, {"a", "parked"});
  EXPECT_GE(share.of("parked").served + 50, share.of("a").served);
}

TEST(FairShare, AContentTenantSavesUpNoCredit) {
  FairShare share;
  for (int i = 0; i < 10; ++i) {
    step(share, {"busy"}, {"light"});
    share.charge("busy", 99);
    share.charge("light", 1);
  }
  step(share, {"busy"}, {"light"});
  EXPECT_EQ(share.of("light").served, share.of("busy").served);
}

TEST(FairShare, AShortPauseForgivesNothing) {
  FairShare share;
  step(share, {"a", "b"});
  share.charge("a", 500);
  share.charge("b", 10);
  step(share, {"b"});
  step(share, {"a", "b"});
  EXPECT_EQ(share.of("a").served, 500u);
  EXPECT_LT(share.of("b").served, 500u);
}

TEST(FairShare, ServiceThatNobodyElseWantedIsFree) {
  FairShare share;
  step(share, {}, {"a", "b"});
  share.charge("a", 500);
  step(share, {}, {"a", "b"});
  EXPECT_EQ(share.of("b").served, 500u);
}

TEST(FairShare, WhenNobodyWantsAnythingAllAreForgotten) {
  FairShare share;
  for (int i = 0; i < 1000; ++i) {
    const std::string tenant = "t" + std::to_string(i);
    step(share, {tenant.c_str()});
    share.charge(tenant, 7);
    EXPECT_LE(share.accounts(), 2u);
  }
  step(share, {});
  EXPECT_EQ(share.accounts(), 0u);
}

}  // namespace
}  // namespace outrider::model
