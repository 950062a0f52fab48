#include "router/lease_table.hpp"

#include <gtest/gtest.h>

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include "base/limits.hpp"
#include "base/philox.hpp"
#include "router/workers.test.hpp"

namespace outrider::router {
namespace {

schema::Announce draft_of(uint64_t worker, uint32_t places) {
  schema::Announce announce = announce_of(worker);
  announce.role = schema::Role::draft;
  announce.sequences = places;
  return announce;
}

class Leases : public ::testing::Test {
 protected:
  struct Config : caf::actor_system_config {
    Config() { schema::add_messages(*this); }
  };

  Leases() {
    // A handle that is not null is all that a lease needs.
    target_ = own_target();
  }
  ~Leases() override {
    for (const auto& target : targets_) caf::anon_send_exit(target, caf::exit_reason::kill);
  }
  schema::TargetHandle own_target() {
    return targets_.emplace_back(caf::actor_cast<schema::TargetHandle>(
        system_.spawn([](caf::event_based_actor*) -> caf::behavior {
          return {[](const schema::AnnounceAgain&) {}};
        })));
  }

  schema::LeaseDraft ask_of(uint64_t session, uint32_t runs = 1, uint64_t target = 1) {
    schema::LeaseDraft ask;
    ask.request = {session, 1};
    ask.target = target;
    ask.reply_to = target_;
    ask.tokenizer = "tokens";
    ask.runs = runs;
    return ask;
  }
  std::vector<LeaseTable::Grant> ask(uint64_t session, uint32_t runs = 1, uint64_t target = 1) {
    return table_.ask(ask_of(session, runs, target), workers_);
  }

  Config config_;
  caf::actor_system system_{config_};
  std::vector<schema::TargetHandle> targets_;
  schema::TargetHandle target_;
  WorkerTable workers_;
  LeaseTable table_;
};

TEST_F(Leases, SpreadOverDraftsAndNeverBeyondTheirPlaces) {
  workers_.announce(draft_of(10, 4), TimePoint{0});
  workers_.announce(draft_of(11, 2), TimePoint{0});
  uint32_t granted = 0;
  for (uint64_t session = 1; session <= 10; ++session) {
    granted += static_cast<uint32_t>(ask(session).size());
  }
  EXPECT_EQ(granted, 6u);
  EXPECT_EQ(table_.leased(10), 4u);
  EXPECT_EQ(table_.leased(11), 2u);
}

TEST_F(Leases, ChooseTheDraftWithTheSmallestShareLeased) {
  workers_.announce(draft_of(10, 8), TimePoint{0});
  workers_.announce(draft_of(11, 64), TimePoint{0});
  const std::map<uint64_t, uint32_t> leased = {{10, 2}, {11, 8}};
  EXPECT_EQ(choose_draft(ask_of(1), workers_, leased)->announce.worker, 11u);
  EXPECT_EQ(choose_draft(ask_of(1), workers_, {{11, 40}})->announce.worker, 10u);
  EXPECT_EQ(choose_draft(ask_of(1, 9), workers_, {})->announce.worker, 11u) << "has the room";
  EXPECT_EQ(choose_draft(ask_of(1, UINT32_MAX), workers_, leased), nullptr);
  schema::LeaseDraft other = ask_of(1);
  other.tokenizer = "other";
  EXPECT_EQ(choose_draft(other, workers_, {}), nullptr);
}

TEST_F(Leases, WhatOtherRoutersHaveLeasedCountsAsWell) {
  workers_.announce(draft_of(10, 8), TimePoint{0});
  workers_.announce(draft_of(11, 8), TimePoint{0});
  schema::Load busy = load_of(10);
  busy.draft_runs = 6;
  ASSERT_TRUE(workers_.update(busy, TimePoint{0}));
  for (uint64_t session = 1; session <= 5; ++session) {
    EXPECT_EQ(choose_draft(ask_of(session), workers_, {{11, 2}})->announce.worker, 11u);
  }
  EXPECT_EQ(choose_draft(ask_of(1), workers_, {{11, 7}})->announce.worker, 10u);
  busy.draft_runs = 8;
  busy.sequence = 2;
  ASSERT_TRUE(workers_.update(busy, TimePoint{0}));
  EXPECT_EQ(choose_draft(ask_of(1), workers_, {{11, 8}})->announce.worker, 10u)
      << "what it said may be over: it has the last word";
}

TEST_F(Leases, TargetsAreNoDrafts) {
  workers_.announce(announce_of(10), TimePoint{0});
  EXPECT_TRUE(ask(1).empty());
}

TEST_F(Leases, WhoWaitsGetsThePlaceThatIsFreed) {
  workers_.announce(draft_of(10, 1), TimePoint{0});
  ASSERT_EQ(ask(1).size(), 1u);
  EXPECT_TRUE(ask(2).empty());
  const auto grants = table_.end({{1, 1}, 1}, workers_);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].lease.request, (RequestKey{2, 1}));
  EXPECT_EQ(grants[0].lease.worker, 10u);
}

TEST_F(Leases, GenerationsOnlyRise) {
  workers_.announce(draft_of(10, 4), TimePoint{0});
  schema::LeaseDraft known = ask_of(1);
  known.generation = 5;
  EXPECT_EQ(table_.ask(known, workers_)[0].lease.generation, 6u);
  EXPECT_EQ(table_.ask(known, workers_)[0].lease.generation, 6u) << "asked twice, leased once";
  EXPECT_EQ(table_.leased(10), 1u);
  workers_.remove(10);
  const auto lost = table_.drop(10, workers_);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].lease.generation, 7u);
  EXPECT_EQ(lost[0].lease.worker, 0u);
  workers_.announce(draft_of(11, 4), TimePoint{0});
  EXPECT_EQ(table_.grant_waiting(workers_)[0].lease.generation, 8u);
}

TEST_F(Leases, ATargetThatIsGoneHoldsNothing) {
  workers_.announce(draft_of(10, 4), TimePoint{0});
  ask(1, 3, 1);
  ask(2, 1, 2);
  EXPECT_TRUE(table_.drop(1, workers_).empty());
  EXPECT_EQ(table_.leased(10), 1u);
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(Leases, WhoWaitsGetsThePlacesOfATargetThatIsGone) {
  workers_.announce(draft_of(10, 2), TimePoint{0});
  ASSERT_EQ(ask(1, 2, 1).size(), 1u);
  EXPECT_TRUE(ask(2, 1, 2).empty());
  EXPECT_TRUE(ask(3, 1, 2).empty());
  const auto grants = table_.drop(1, workers_);
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].lease.request, (RequestKey{2, 1}));
  EXPECT_EQ(grants[1].lease.worker, 10u);
  EXPECT_EQ(table_.leased(10), 2u);
}

TEST_F(Leases, WhoWasLeasedByAnotherRouterMeanwhileIsGrantedANewerOne) {
  workers_.announce(draft_of(10, 1), TimePoint{0});
  schema::LeaseDraft known = ask_of(1);
  ASSERT_EQ(table_.ask(known, workers_).at(0).lease.generation, 1u);
  known.generation = 7;
  const auto other = own_target();
  known.reply_to = other;
  auto grants = table_.ask(known, workers_);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].lease.generation, 8u);
  EXPECT_EQ(grants[0].to, other) << "it was started anew";
  EXPECT_EQ(table_.leased(10), 1u);
  schema::LeaseDraft waits = ask_of(2);
  EXPECT_TRUE(table_.ask(waits, workers_).empty());
  waits.generation = 4;
  waits.reply_to = other;
  EXPECT_TRUE(table_.ask(waits, workers_).empty());
  grants = table_.end({{1, 1}, 1}, workers_);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].lease.generation, 5u);
  EXPECT_EQ(grants[0].to, other);
}

TEST_F(Leases, AFullTableRefusesNewOnesOnly) {
  workers_.announce(draft_of(10, 1), TimePoint{0});
  for (uint64_t session = 1; session <= limits::draft_leases_max; ++session) ask(session);
  EXPECT_TRUE(ask(limits::draft_leases_max + 1).empty());
  EXPECT_EQ(table_.size(), limits::draft_leases_max);
  EXPECT_EQ(ask(1).size(), 1u) << "it has a lease";
}

/// What is leased is the sum of what was granted and not ended, and nobody waits where there is
/// room, whatever happens in which order.
TEST_F(Leases, CountsOfRandomHistoriesAreExact) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    WorkerTable workers;
    LeaseTable table;
    std::map<std::pair<uint64_t, uint64_t>, std::pair<uint64_t, uint32_t>> held;  // draft, runs
    const auto note = [&](const std::vector<LeaseTable::Grant>& grants, uint64_t target) {
      for (const auto& [to, lease] : grants) {
        for (auto& [key, value] : held) {
          if (key.second == lease.request.session && (target == 0 || key.first == target)) {
            value.first = lease.worker;
          }
        }
      }
    };
    for (int i = 0; i < 400; ++i) {
      const uint64_t session = 1 + random.below(30);
      const uint64_t draft = 100 + random.below(3);
      const uint64_t target = 1 + session % 2;  // of each session always the same
      switch (random.below(6)) {
        case 0:
        case 1: {
          const uint32_t runs = 1 + static_cast<uint32_t>(session % 3);
          held.try_emplace({target, session}, 0, runs);
          note(table.ask(ask_of(session, runs, target), workers), 0);
          break;
        }
        case 2:
          held.erase({target, session});
          note(table.end({{session, 1}, target}, workers), 0);
          break;
        case 3:
          workers.announce(draft_of(draft, 8), TimePoint{0});
          note(table.grant_waiting(workers), 0);
          break;
        case 4:
          workers.remove(draft);
          note(table.drop(draft, workers), 0);
          break;
        case 5:
          if (i % 8 > 0) break;
          std::erase_if(held, [&](const auto& entry) { return entry.first.first == target; });
          note(table.drop(target, workers), 0);
          break;
      }
      std::map<uint64_t, uint32_t> runs;
      for (const auto& [key, value] : held) runs[value.first] += value.second;
      for (uint64_t id = 100; id < 103; ++id) {
        ASSERT_EQ(table.leased(id), runs[id]) << seed << ' ' << i;
        ASSERT_LE(table.leased(id), 8u);
        if (!workers.workers().contains(id)) continue;
        for (const auto& [key, value] : held) {
          ASSERT_FALSE(value.first == 0 && table.leased(id) + value.second <= 8)
              << seed << ' ' << i;
        }
      }
      ASSERT_EQ(table.size(), held.size()) << seed << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace outrider::router
