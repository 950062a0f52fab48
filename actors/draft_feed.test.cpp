#include "actors/draft_feed.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using schema::DraftEnd;
using std::chrono::milliseconds;

constexpr RequestKey k_key = {7, 1};
constexpr uint64_t k_draft = 100;  ///< Worker of the first draft.

class Feed : public ::testing::Test {
 protected:
  static GenerationRequest request(uint32_t choices = 1) {
    GenerationRequest request;
    request.prompt = {1, 2, 3};
    request.choices = choices;
    request.stop.stop_strings = {"end"};
    return request;
  }
  void lease(uint32_t generation = 1, uint32_t draft = 0) {
    feed_.take(schema::DraftLease{k_key, generation, k_draft + draft, {}});
  }
  /// A step that gave the choice these tokens.
  void step(std::vector<int32_t> ids, bool ends = false, uint32_t choice = 0) {
    model::ChoiceUpdate update;
    update.key = k_key;
    update.choice = choice;
    for (const int32_t id : ids) update.tokens.push_back({id, std::nullopt});
    if (ends) update.finish = Finish{FinishReason::length, -1, -1};
    feed_.commit({&update, 1},
                 {1, static_cast<uint32_t>(ids.size()), true, milliseconds(2), hints_could_pay_});
  }
  template <class Message>
  std::vector<Message> sent(uint32_t draft = 0) {
    std::vector<Message> found;
    for (const auto& [to, message] : box_.to_drafts) {
      const auto* match = std::get_if<Message>(&message);
      if (match != nullptr && to == k_draft + draft) found.push_back(*match);
    }
    return found;
  }
  std::vector<schema::DraftCommit> commits(uint32_t draft = 0) {
    std::vector<schema::DraftCommit> all;
    for (const auto& message : sent<schema::DraftCommits>(draft)) {
      all.insert(all.end(), message.commits.begin(), message.commits.end());
    }
    return all;
  }
  void read() { box_ = feed_.take_outbox(); }
  static schema::DraftKey key(uint32_t generation = 1, uint32_t choice = 0) {
    return {9, k_key, choice, generation};
  }
  static schema::DraftHints hint(const schema::DraftKey& key) {
    return {{{key, 5, 55, {{-1, 8, 200}}}}};
  }

  DraftFeed feed_{{.target = 9, .tokenizer = "tokens", .depth_max = 8, .duty = {.always = true}}};
  FeedOutbox box_;
  bool hints_could_pay_ = true;
};

TEST_F(Feed, AsksTheNextRouterForAllThatIsOpen) {
  feed_.begin(k_key, request());
  lease();
  feed_.begin({8, 1}, request());
  read();
  feed_.ask_again();
  read();
  ASSERT_EQ(box_.asks.size(), 2u) << "one has a draft, one waits for it";
  EXPECT_EQ(box_.asks[0].request, k_key);
  EXPECT_EQ(box_.asks[0].generation, 1u);
  lease(2, 1);
  read();
  EXPECT_EQ(sent<schema::DraftClose>(0).size(), 1u);
  EXPECT_EQ(sent<schema::DraftOpen>(1).size(), 1u) << "the draft that the next one leases";
}

TEST_F(Feed, AsksForALeaseAndTellsTheDraftTheWholeText) {
  feed_.begin(k_key, request());
  read();
  ASSERT_EQ(box_.asks.size(), 1u);
  EXPECT_EQ(box_.asks[0].request, k_key);
  EXPECT_EQ(box_.asks[0].tokenizer, "tokens");
  EXPECT_TRUE(box_.to_drafts.empty());
  lease();
  read();
  ASSERT_EQ(sent<schema::DraftOpen>().size(), 1u);
  EXPECT_EQ(sent<schema::DraftOpen>()[0].prompt_tokens, 3u);
  EXPECT_TRUE(sent<schema::DraftOpen>()[0].request.stop_strings.empty());
  ASSERT_EQ(commits().size(), 1u);
  EXPECT_EQ(commits()[0].key, key());
  EXPECT_EQ(commits()[0].base_length, 0u);
  EXPECT_EQ(commits()[0].tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(commits()[0].depth, 8u);
  step({4, 5});
  read();
  ASSERT_EQ(commits().size(), 1u);
  EXPECT_EQ(commits()[0].base_length, 3u);
  EXPECT_EQ(commits()[0].tokens, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(commits()[0].step_ns, 2'000'000u);
  EXPECT_EQ(box_.asks.size(), 0u) << "once";
}

TEST_F(Feed, ALateLeaseGetsAllThatWasCommittedBefore) {
  feed_.begin(k_key, request());
  step({4, 5});
  read();
  lease();
  read();
  EXPECT_EQ(commits()[0].tokens, (std::vector<int32_t>{1, 2, 3, 4, 5}));
}

TEST_F(Feed, ResumedRequestsBringTheirOutput) {
  GenerationRequest resumed = request();
  resumed.committed = {4};
  feed_.begin(k_key, resumed);
  lease();
  read();
  EXPECT_EQ(sent<schema::DraftOpen>()[0].prompt_tokens, 3u);
  EXPECT_EQ(commits()[0].tokens, (std::vector<int32_t>{1, 2, 3, 4}));
}

TEST_F(Feed, LongTextsTravelInPartsAndChoicesInOneMessage) {
  GenerationRequest wide = request(3);
  wide.prompt.assign(2 * limits::prompt_part_tokens_max + 5, 1);
  feed_.begin(k_key, wide);
  lease();
  read();
  std::map<uint32_t, uint32_t> told;
  for (const schema::DraftCommits& message : sent<schema::DraftCommits>()) {
    size_t tokens = 0;
    for (const schema::DraftCommit& commit : message.commits) {
      EXPECT_EQ(commit.base_length, told[commit.key.choice]);
      told[commit.key.choice] += static_cast<uint32_t>(commit.tokens.size());
      tokens += commit.tokens.size();
    }
    EXPECT_LE(tokens, limits::prompt_part_tokens_max);
  }
  for (uint32_t choice = 0; choice < 3; ++choice) EXPECT_EQ(told[choice], wide.prompt.size());
  std::vector<model::ChoiceUpdate> updates(3);
  for (uint32_t choice = 0; choice < 3; ++choice) {
    updates[choice].key = k_key;
    updates[choice].choice = choice;
    updates[choice].tokens = {{4, std::nullopt}};
  }
  feed_.commit(updates, {3, 3, true, milliseconds(1), true});
  read();
  EXPECT_EQ(sent<schema::DraftCommits>().size(), 1u);
  EXPECT_EQ(commits().size(), 3u);
}

TEST_F(Feed, PassesOnHintsOfTheLeaseThatHoldsAndCountsOthers) {
  feed_.begin(k_key, request());
  lease(3);
  read();
  feed_.take(hint(key(3)));
  feed_.take(hint(key(2)));
  feed_.take(hint(key(3, 1)));
  schema::DraftKey other = key(3);
  other.target = 8;
  feed_.take(hint(other));
  other = key(3);
  other.request.session = 8;
  feed_.take(hint(other));
  read();
  ASSERT_EQ(box_.hints.size(), 1u);
  EXPECT_EQ(box_.hints[0].key, k_key);
  EXPECT_EQ(box_.hints[0].base_hash, 55u);
  ASSERT_EQ(box_.hints[0].branches.size(), 1u);
  EXPECT_EQ(box_.hints[0].branches[0].token, 8);
  EXPECT_EQ(box_.hints[0].branches[0].confidence, 200);
  EXPECT_EQ(box_.unleased, 4u);
}

TEST_F(Feed, TakesNoMoreOfADraftThanOneSays) {
  feed_.begin(k_key, request());
  lease();
  step({4});
  schema::DraftHints wide = hint(key());
  wide.hints[0].branches.assign(limits::draft_branches_max + 1, {-1, 8, 200});
  feed_.take(wide);
  schema::DraftHints many;
  many.hints.assign(limits::draft_entries_max + 1, hint(key()).hints[0]);
  feed_.take(many);
  read();
  EXPECT_TRUE(box_.hints.empty());
  EXPECT_EQ(box_.unleased, 1 + many.hints.size());
}

TEST_F(Feed, WhatOnlyWaitsTakesNoPlaceFromWhatRuns) {
  feed_ = DraftFeed({.target = 9,
                     .tokenizer = "tokens",
                     .depth_max = 8,
                     .duty = {.always = true},
                     .sequences = 1});
  feed_.begin({6, 1}, request());
  read();
  ASSERT_EQ(box_.asks.size(), 1u) << "it will run at once";
  feed_.begin(k_key, request());
  feed_.begin({8, 1}, request());
  read();
  EXPECT_TRUE(box_.asks.empty());
  step({4});
  read();
  ASSERT_EQ(box_.asks.size(), 1u);
  EXPECT_EQ(box_.asks[0].request, k_key);
}

TEST_F(Feed, TheEndOfARequestIsToldToAll) {
  feed_.begin(k_key, request(2));
  lease();
  read();
  step({4}, true, 0);
  read();
  ASSERT_EQ(sent<schema::DraftClose>().size(), 1u);
  EXPECT_EQ(sent<schema::DraftClose>()[0].key, key(1, 0));
  EXPECT_TRUE(box_.ends.empty());
  step({4}, true, 1);
  read();
  ASSERT_EQ(sent<schema::DraftClose>().size(), 1u);
  ASSERT_EQ(box_.ends.size(), 1u);
  EXPECT_EQ(box_.ends[0].request, k_key);
  EXPECT_EQ(feed_.open(), 0u);
  feed_.take(hint(key()));
  read();
  EXPECT_EQ(box_.unleased, 1u);
}

TEST_F(Feed, AnotherLeaseBeginsAnew) {
  feed_.begin(k_key, request());
  lease(1, 0);
  step({4});
  read();
  lease(2, 1);
  read();
  EXPECT_EQ(sent<schema::DraftClose>(0).size(), 1u);
  EXPECT_EQ(sent<schema::DraftOpen>(1).at(0).key, key(2));
  EXPECT_EQ(commits(1).at(0).tokens, (std::vector<int32_t>{1, 2, 3, 4}));
  lease(1, 0);
  read();
  EXPECT_TRUE(box_.to_drafts.empty()) << "an older one comes late";
  feed_.take(schema::DraftLease{k_key, 3, 0, {}});
  step({5});
  read();
  EXPECT_TRUE(commits(1).empty()) << "there is no draft any more";
}

TEST_F(Feed, SendsAgainWhatIsMissing) {
  feed_.begin(k_key, request());
  lease();
  step({4, 5});
  read();
  feed_.take(schema::DraftResync{key(), 2});
  read();
  ASSERT_EQ(commits().size(), 1u);
  EXPECT_EQ(commits()[0].base_length, 2u);
  EXPECT_EQ(commits()[0].tokens, (std::vector<int32_t>{3, 4, 5}));
  feed_.take(schema::DraftResync{key(), 1000});
  step({6});
  read();
  EXPECT_EQ(commits()[0].base_length, 5u);
}

TEST_F(Feed, WhatADraftWillNotHaveIsNotOfferedAgain) {
  feed_.begin(k_key, request());
  lease();
  feed_.take(schema::DraftClose{key(), DraftEnd::displaced});
  read();
  step({4});
  read();
  EXPECT_TRUE(box_.to_drafts.empty());
  feed_.ask_again();
  lease(2, 1);
  read();
  EXPECT_EQ(sent<schema::DraftOpen>(1).size(), 1u) << "another draft may";
  feed_.take(schema::DraftClose{key(2), DraftEnd::unknown});
  step({5});
  read();
  EXPECT_EQ(sent<schema::DraftOpen>(1).size(), 1u) << "it forgot";
  EXPECT_EQ(commits(1).at(0).tokens.size(), 5u);
}

TEST_F(Feed, ThePlaceOfADraftThatWillHaveNothingIsGivenBackOnce) {
  feed_.begin(k_key, request(2));
  lease();
  read();
  feed_.take(schema::DraftClose{key(1, 0), DraftEnd::exhausted});
  read();
  EXPECT_TRUE(box_.ends.empty()) << "the other choice has it";
  feed_.take(schema::DraftClose{key(1, 1), DraftEnd::exhausted});
  read();
  ASSERT_EQ(box_.ends.size(), 1u);
  EXPECT_EQ(box_.ends[0].request, k_key);
  EXPECT_EQ(box_.ends[0].target, 9u);
  EXPECT_FALSE(feed_.has_leased(k_draft));
  feed_.take(schema::DraftClose{key(1, 1), DraftEnd::exhausted});
  lease(2, 1);
  step({4}, false, 0);
  read();
  EXPECT_TRUE(box_.ends.empty());
  EXPECT_TRUE(box_.asks.empty());
  EXPECT_TRUE(box_.to_drafts.empty()) << "the lease was under way: its place is given back";
  step({4}, true, 0);
  step({4}, true, 1);
  read();
  EXPECT_TRUE(box_.ends.empty());
}

TEST_F(Feed, APlaceIsGivenBackWhenTheChoicesThatUsedItAreOver) {
  feed_.begin(k_key, request(2));
  lease();
  feed_.take(schema::DraftClose{key(1, 0), DraftEnd::displaced});
  read();
  EXPECT_TRUE(box_.ends.empty());
  step({4}, true, 1);
  read();
  EXPECT_EQ(sent<schema::DraftClose>().size(), 1u);
  EXPECT_EQ(box_.ends.size(), 1u);
  feed_.ask_again();
  read();
  EXPECT_EQ(box_.asks.size(), 1u) << "the next router may know of another draft";
  step({4}, true, 0);
  read();
  EXPECT_EQ(box_.ends.size(), 1u);
}

TEST_F(Feed, AnUnknownThatIsOlderThanTheOpenLeavesNoRunBehind) {
  feed_.begin(k_key, request());
  lease();
  read();
  feed_.take(schema::DraftClose{key(), DraftEnd::unknown});
  step({4}, true);
  read();
  EXPECT_EQ(sent<schema::DraftClose>().size(), 1u);
}

TEST_F(Feed, ASilentDraftIsToldNoMoreThanABound) {
  feed_.begin(k_key, request());
  lease();
  uint32_t messages = 0;
  for (uint32_t i = 0; i < 3 * limits::draft_unanswered_max; ++i) {
    step({4});
    read();
    messages += static_cast<uint32_t>(sent<schema::DraftCommits>().size());
  }
  EXPECT_EQ(messages, limits::draft_unanswered_max);
  feed_.beat();
  read();
  ASSERT_EQ(commits().size(), 1u) << "one with all that was held back";
  EXPECT_GT(commits()[0].tokens.size(), limits::draft_unanswered_max);
  step({4});
  read();
  EXPECT_TRUE(commits().empty());
  feed_.take(hint(key()));
  step({4});
  read();
  EXPECT_EQ(commits().size(), 1u);
}

TEST_F(Feed, KnowsOfDraftsAsLongAsARequestHasThem) {
  feed_.begin(k_key, request());
  lease();
  EXPECT_TRUE(feed_.has_leased(k_draft));
  lease(2, 1);
  EXPECT_FALSE(feed_.has_leased(k_draft)) << "another one has it";
  feed_.forget(k_key);
  EXPECT_FALSE(feed_.has_leased(k_draft + 1));
}

TEST_F(Feed, RequestsThatDoNotSpeculateAreLeftAlone) {
  GenerationRequest plain = request();
  plain.speculation.enabled = false;
  feed_.begin(k_key, plain);
  lease();
  step({4});
  read();
  EXPECT_TRUE(box_.asks.empty());
  EXPECT_TRUE(box_.to_drafts.empty());
}

TEST_F(Feed, WhoseLastTokenIsNextIsNotDraftedFor) {
  GenerationRequest brief = request();
  brief.committed = {4, 5};
  for (const uint32_t most : {0u, 1u, 2u, 3u}) {
    brief.stop.max_tokens = most;
    feed_.begin(k_key, brief);
    read();
    EXPECT_TRUE(box_.asks.empty()) << most;
  }
  brief.stop.max_tokens = 4;
  feed_.begin(k_key, brief);
  read();
  EXPECT_EQ(box_.asks.size(), 1u);
}

TEST_F(Feed, ADraftOnTheSameCoresComputesAPromptAfterTheTarget) {
  feed_ = DraftFeed({.target = 9,
                     .tokenizer = "tokens",
                     .depth_max = 8,
                     .duty = {.always = true, .competes = true}});
  GenerationRequest moved = request(2);
  moved.committed = {4};
  feed_.begin(k_key, moved);
  lease();
  step({});
  read();
  EXPECT_EQ(box_.asks.size(), 1u) << "its place it may have";
  EXPECT_TRUE(box_.to_drafts.empty()) << "what was committed elsewhere is computed again here";
  step({5}, false, 1);
  read();
  ASSERT_EQ(sent<schema::DraftOpen>().size(), 1u) << "of the choice that has begun";
  EXPECT_EQ(sent<schema::DraftOpen>()[0].key.choice, 1u);
  step({6});
  read();
  ASSERT_EQ(commits().size(), 1u);
  EXPECT_EQ(commits()[0].tokens, (std::vector<int32_t>{1, 2, 3, 4, 6}));
}

TEST_F(Feed, ARefusedRequestGivesItsLeaseBack) {
  feed_.begin(k_key, request());
  feed_.forget(k_key);
  read();
  EXPECT_EQ(box_.ends.size(), 1u);
}

TEST_F(Feed, WhatNobodyReadsIsNotDraftedFor) {
  feed_.begin(k_key, request());
  lease();
  read();
  feed_.set_parked({8, 1}, true);  // another's
  read();
  EXPECT_TRUE(commits().empty());
  feed_.set_parked(k_key, true);
  read();
  ASSERT_EQ(commits().size(), 1u);
  EXPECT_EQ(commits()[0].depth, 0u);
  step({4});  // was under way
  read();
  EXPECT_TRUE(commits().empty());
  feed_.set_parked(k_key, false);
  read();
  ASSERT_EQ(commits().size(), 1u);
  EXPECT_GT(commits()[0].depth, 0u);
  EXPECT_EQ(commits()[0].tokens, std::vector<int32_t>{4});
}

/// Drafts on duty only where that pays: here they never come, so that each try fails.
TEST_F(Feed, OffDutyNobodyDrafts) {
  feed_ = DraftFeed({.target = 9, .tokenizer = "tokens", .depth_max = 8});
  feed_.begin(k_key, request());
  lease();
  read();
  EXPECT_TRUE(box_.asks.empty());
  EXPECT_TRUE(box_.to_drafts.empty());
  bool opened = false;
  uint32_t depth = 0;
  for (int i = 0; i < 200 || (feed_.on() && i < 400); ++i) {
    step({4});
    read();
    opened |= !sent<schema::DraftOpen>().empty();
    for (const schema::DraftCommit& commit : commits()) depth = commit.depth;
    if (feed_.on() || depth == 0) continue;
    FAIL() << "off duty, and the draft was not told";
  }
  EXPECT_TRUE(opened) << "it was tried";
  EXPECT_FALSE(feed_.on());
  EXPECT_EQ(depth, 0u);
  feed_.take(hint(key()));
  read();
  EXPECT_EQ(box_.unleased, 1u);
}

TEST_F(Feed, NobodyIsAskedToDraftWhereNoHintCouldPay) {
  feed_ = DraftFeed({.target = 9, .tokenizer = "tokens", .depth_max = 8});
  feed_.begin(k_key, request());
  hints_could_pay_ = false;
  for (int i = 0; i < 400; ++i) step({4});
  read();
  EXPECT_TRUE(box_.asks.empty());
  hints_could_pay_ = true;
  for (int i = 0; i < 60; ++i) step({4});
  read();
  EXPECT_EQ(box_.asks.size(), 1u);
}

}  // namespace
}  // namespace outrider::actors
