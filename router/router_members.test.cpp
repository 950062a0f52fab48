#include <algorithm>

#include "base/limits.hpp"
#include "router/router_world.test.hpp"

namespace outrider::router {
namespace {

/// Who a router's members are, and what it tells of them.
class RouterMembers : public RouterWorld {};

TEST_F(RouterMembers, ForgetsAWorkerThatGoesDown) {
  const auto target = worker(1);
  EXPECT_EQ(workers().size(), 1u);
  kill(target);
  EXPECT_TRUE(workers().empty());
}

TEST_F(RouterMembers, ForgetsAWorkerThatFallsSilentAndTakesItBack) {
  const auto silent = worker(1);
  const auto loud = worker(2);
  for (uint64_t beat = 1; beat <= 8; ++beat) {
    advance(limits::heartbeat_interval_ms);
    heartbeat(loud, load_of(2, beat));
  }
  ASSERT_EQ(workers().size(), 1u);
  EXPECT_EQ(workers()[0].announce.worker, 2u);
  heartbeat(silent, load_of(1, 1));
  EXPECT_EQ(*asked_, 1u) << "an unknown worker is asked who it is";
  announce(silent, announce_of(1));
  EXPECT_EQ(workers().size(), 2u);
}

TEST_F(RouterMembers, OneActorIsOneWorker) {
  const auto target = worker(1);
  for (uint64_t id = 2; id < 50; ++id) announce(target, announce_of(id));
  ASSERT_EQ(workers().size(), 1u);
  EXPECT_EQ(workers()[0].announce.worker, 1u);
}

TEST_F(RouterMembers, WhatAMemberIsCalledStaysInItsLineOfTheLog) {
  const auto target = worker(1);
  schema::Announce forged = announce_of(1);
  ++forged.incarnation;
  forged.model = "m\n2026 E all is lost \xff";
  announce(target, forged);
  ASSERT_EQ(workers().size(), 1u);
  EXPECT_EQ(workers()[0].announce.model, forged.model) << "requests name it";
  EXPECT_NE(lines_.str().find("of m?2026?E?all?is?lost??, context"), std::string::npos)
      << lines_.str();
}

TEST_F(RouterMembers, RefusesADraftOfAnotherTokenizerLoudly) {
  const auto target = worker(1);
  draft(2, "other tokens");
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_EQ(refused_->at(0).refusal.field, "draft");
  EXPECT_NE(lines_.str().find("tokenizer"), std::string::npos) << lines_.str();
  EXPECT_EQ(workers().size(), 1u);
  ask_draft(target, 7);
  EXPECT_EQ(leases_->size(), 0u);
}

TEST_F(RouterMembers, RefusesADraftThatCameBeforeTheTargetThatItDoesNotFit) {
  draft(2, "other tokens");
  draft(3);
  EXPECT_TRUE(refused_->empty()) << "no target yet";
  const auto target = worker(1);
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_EQ(refused_->at(0).worker, 2u);
  EXPECT_EQ(workers().size(), 2u);
  kill(target);
  draft(4);
  EXPECT_EQ(refused_->size(), 1u) << "its target is away for a moment";
}

TEST_F(RouterMembers, RefusesTargetsThatWouldAnswerOtherwise) {
  worker(1);
  schema::Announce other = announce_of(2);
  other.fingerprint = "other context";
  other.traits = {{"weights", "w"}, {"ctx", "4096"}};
  const auto early = worker(3);
  announce(early, [&] {
    schema::Announce changed = other;
    changed.worker = 3;
    return changed;
  }());
  EXPECT_TRUE(refused_->empty()) << "nobody has said what is served";
  serve({{announce_of(1).model, "fp", {{"weights", "w"}, {"ctx", "8192"}}}});
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_EQ(refused_->at(0).worker, 3u);
  EXPECT_EQ(refused_->at(0).refusal.field, "model");
  EXPECT_THAT(refused_->at(0).refusal.message, testing::EndsWith(": ctx 4096, not 8192"));
  EXPECT_EQ(workers().size(), 1u);

  const auto late = worker(2);
  EXPECT_EQ(workers().size(), 2u) << "a twin";
  announce(late, other);
  EXPECT_EQ(refused_->size(), 2u);
  EXPECT_EQ(workers().size(), 1u);
  other.fingerprint = "fp";
  other.model = "another name";
  announce(late, other);
  ASSERT_EQ(refused_->size(), 3u);
  EXPECT_NE(refused_->at(2).refusal.message.find("--model-name"), std::string::npos)
      << refused_->at(2).refusal.message;
  EXPECT_EQ(listed().refused, 3u);
}

TEST_F(RouterMembers, PlacesNothingOnATargetThatHangsAndCountsItOnce) {
  const auto hangs = worker(1);
  schema::Load load = load_of(1, 1);
  load.hangs = true;
  heartbeat(hangs, load);
  load.sequence = 2;
  heartbeat(hangs, load);
  ask(request_of(5));
  EXPECT_TRUE(replies_->empty()) << "it is held";
  EXPECT_EQ(listed().hung, 1u);
  const auto other = worker(2);
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_EQ(replies_->at(0).target, other);
  load.hangs = false;
  load.sequence = 3;
  heartbeat(hangs, load);
  EXPECT_NE(lines_.str().find("goes on"), std::string::npos) << lines_.str();
}

TEST_F(RouterMembers, ADraftThatFitsNoTargetToComeIsRefusedBeforeOneIsThere) {
  serve({{.model = "tiny", .traits = {{"tokenizer", "tk"}}}});
  draft(1, "other tokens");
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_THAT(refused_->at(0).refusal.message, testing::HasSubstr("than that of \"tiny\""));
  draft(2, "tk");
  EXPECT_EQ(refused_->size(), 1u);
  EXPECT_EQ(workers().size(), 1u);
}

TEST_F(RouterMembers, BeforeAFirstTargetOnlyWhatIsKnownOfItCounts) {
  serve({{.model = "tiny", .traits = {{"tokenizer", "tk"}}}});
  schema::Announce announced = announce_of(1);
  announced.traits = {{"tokenizer", "tk"}, {"ctx", "8192"}};
  const auto target = worker(9);  // Names nothing.
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_THAT(refused_->at(0).refusal.message, testing::HasSubstr("tokenizer none, not tk"));
  announce(target, announced);
  EXPECT_EQ(workers().size(), 1u);
  announced.worker = 2;
  announced.model = "other";
  announce(target, announced);
  ASSERT_EQ(refused_->size(), 2u);
  EXPECT_THAT(refused_->at(1).refusal.message,
              testing::HasSubstr("it serves \"other\", the cluster \"tiny\""));
  draft(3);
  EXPECT_EQ(refused_->size(), 2u) << "who was refused says nothing of what drafts have to be";
}

TEST_F(RouterMembers, TellsWhoCameWhoIsSilentAndWhoIsGone) {
  const auto gone = worker(1);
  worker(2);
  announce(gone, announce_of(1));
  const std::string joined = lines_.str();
  EXPECT_EQ(std::count(joined.begin(), joined.end(), '\n'), 2) << joined;
  EXPECT_NE(joined.find(" joined: "), std::string::npos) << joined;
  kill(gone);
  EXPECT_NE(lines_.str().find(" is gone"), std::string::npos) << lines_.str();
  for (uint32_t ms = 0; ms <= limits::heartbeat_timeout_ms; ms += limits::heartbeat_interval_ms) {
    advance(limits::heartbeat_interval_ms);
  }
  EXPECT_NE(lines_.str().find(" is late"), std::string::npos) << lines_.str();
  EXPECT_NE(lines_.str().find(" is silent"), std::string::npos) << lines_.str();
  EXPECT_EQ(listed().joined, 2u);
  EXPECT_EQ(listed().gone, 1u);
  EXPECT_EQ(listed().late, 1u) << "once";
  EXPECT_EQ(listed().silent, 1u);
  EXPECT_EQ(listed().refused, 0u);
}

TEST_F(RouterMembers, AreListedAsTheyJoined) {
  for (const uint64_t id : {7, 2, 9, 1}) worker(id);
  std::vector<uint64_t> listed;
  for (const schema::WorkerInfo& it : workers()) listed.push_back(it.announce.worker);
  EXPECT_EQ(listed, (std::vector<uint64_t>{7, 2, 9, 1}));
}

TEST_F(RouterMembers, AreAllCountedAlsoThoseThatNoListHasRoomFor) {
  constexpr uint32_t k_targets = limits::listed_workers_max + 10;
  for (const uint32_t id : {1, 2}) draft(k_targets + id);
  for (uint32_t id = 1; id <= k_targets; ++id) {
    schema::Load load = load_of(id);
    load.running = 2;
    load.blocks_total = id;
    load.leaving = id <= 11;
    heartbeat(worker(id), load);
  }
  const schema::WorkerList list = listed();
  EXPECT_EQ(list.workers[0].announce.role, schema::Role::draft) << "the first";
  EXPECT_EQ(list.workers[1].announce.worker, 12u) << "those that take requests";
  EXPECT_EQ(list.workers.back().announce.worker, k_targets);
  EXPECT_EQ(list.workers.size(), limits::listed_workers_max);
  EXPECT_EQ(list.targets, k_targets);
  EXPECT_EQ(list.drafts, 2u);
  EXPECT_EQ(list.in_targets.running, 2 * k_targets);
  EXPECT_EQ(list.in_targets.blocks_total, k_targets * (k_targets + 1) / 2);
}

TEST_F(RouterMembers, AWorkerThatStopsInOrderIsNoWarning) {
  const auto target = worker(1);
  announce(target, announce_of(1));
  caf::anon_send_exit(target, caf::exit_reason::user_shutdown);
  run();
  EXPECT_NE(lines_.str().find("[info] worker-1 has stopped"), std::string::npos) << lines_.str();
  EXPECT_EQ(lines_.str().find("warning]"), std::string::npos) << lines_.str();
  EXPECT_EQ(listed().left, 1u);
  EXPECT_EQ(listed().gone, 0u);
}

TEST_F(RouterMembers, AfterItStoodStillItselfItReadsFirstAndJudgesThen) {
  worker(1);
  scheduler_.advance_time(std::chrono::milliseconds(10 * limits::heartbeat_timeout_ms));
  run();
  EXPECT_EQ(workers().size(), 1u) << "it is the router that was stopped";
  advance(limits::heartbeat_interval_ms);
  EXPECT_TRUE(workers().empty()) << "and it had time to speak since";
}

TEST_F(RouterMembers, NamesAreForLinesOfLogsAndToldApart) {
  schema::Announce forged = announce_of(1, 2);
  forged.name = "a\nfake line\x1b[31m";
  announce(worker(1), forged);
  EXPECT_EQ(workers()[0].announce.name, "a?fake?line?[31m");
  schema::Announce other = announce_of(2, 3);
  other.name = forged.name;
  announce(worker(2), other);
  EXPECT_NE(lines_.str().find("another member is called a?fake?line?[31m, too"), std::string::npos)
      << lines_.str();
}

/// Its process answers for the draft model itself, too: as a target of the same name.
TEST_F(RouterMembers, ADraftModelsTwoRolesAreNoNamesakesAndNoDraftForEachOther) {
  draft(7);
  schema::Announce front = announce_of(8, incarnation_of_draft(7));
  front.name = announce_of(7).name;
  front.tokenizer = "tokens";
  announce(worker(8), front);
  EXPECT_EQ(lines_.str().find("is called"), std::string::npos) << lines_.str();
  ASSERT_FALSE(known_->empty());
  EXPECT_EQ(known_->back(), 0u) << "its own draft model";
  schema::Announce target = announce_of(9);
  target.tokenizer = "tokens";
  announce(worker(9), target);
  EXPECT_EQ(known_->back(), 1u);
}

TEST_F(RouterMembers, TellsWhoIsLateAndHeardAgainAndWhoIsLeaving) {
  const auto target = worker(1);
  for (int beat = 0; beat < 3; ++beat) advance(limits::heartbeat_interval_ms);
  EXPECT_NE(lines_.str().find(" is late: nothing was heard of it for 1500 ms"), std::string::npos)
      << lines_.str();
  schema::Load load = load_of(1, 1);
  heartbeat(target, load);
  EXPECT_NE(lines_.str().find(" is heard again after 1500 ms"), std::string::npos) << lines_.str();
  load.leaving = true;
  for (load.sequence = 2; load.sequence < 4; ++load.sequence) heartbeat(target, load);
  load.leaving = false;
  load.sequence = 2;
  heartbeat(target, load);
  EXPECT_NE(lines_.str().find(" is leaving"), std::string::npos) << lines_.str();
  EXPECT_EQ(listed().late, 1u);
  EXPECT_EQ(listed().leaving, 1u) << "once, and old news are none";
}

}  // namespace
}  // namespace outrider::router
