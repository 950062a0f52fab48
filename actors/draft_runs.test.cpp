#include "actors/draft_runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "actors/draft_engine.test.hpp"
#include "base/philox.hpp"

namespace outrider::actors {
namespace {

using schema::DraftEnd;
using std::chrono::milliseconds;

schema::DraftKey key_of(uint64_t session, uint32_t generation = 1, uint64_t target = 9) {
  return {target, {session, 1}, 0, generation};
}

class Drafting : public ::testing::Test {
 protected:
  void open(const schema::DraftKey& key, uint32_t prompt_tokens = 3,
            const std::string& tokenizer = "tokens") {
    schema::DraftOpen open;
    open.key = key;
    open.tokenizer = tokenizer;
    open.prompt_tokens = prompt_tokens;
    runs_.take(open);
  }
  void commit(const schema::DraftKey& key, uint32_t base, std::vector<int32_t> tokens,
              uint32_t depth = 4) {
    runs_.take(schema::DraftCommits{{{key, base, std::move(tokens), depth, 0}}});
  }
  void step(uint32_t count = 1) {
    for (uint32_t i = 0; i < count; ++i) runs_.advance(engine_.step(), milliseconds(1));
  }
  /// Opens and commits the prompt.
  void begin(const schema::DraftKey& key) {
    open(key, static_cast<uint32_t>(prompt_.size()));
    commit(key, 0, prompt_);
  }
  /// The tokens of the last hint, which is one chain; also checks what it stands behind.
  std::vector<int32_t> hinted(const std::vector<int32_t>& committed) {
    const DraftReplies replies = runs_.take_replies();
    if (replies.hints.empty()) return {};
    const schema::DraftHint& hint = replies.hints.back();
    EXPECT_EQ(hint.base_length, committed.size());
    EXPECT_EQ(hint.base_hash, model::text_hash(model::k_empty_text, committed));
    std::vector<int32_t> tokens;
    for (const schema::DraftBranch& branch : hint.branches) {
      EXPECT_EQ(branch.parent, static_cast<int32_t>(tokens.size()) - 1);
      tokens.push_back(branch.token);
    }
    return tokens;
  }
  bool was_closed(DraftEnd reason) {
    const DraftReplies replies = runs_.take_replies();
    return replies.closes.size() == 1 && replies.closes[0].reason == reason;
  }

  const std::vector<int32_t> prompt_ = {5, 6, 7};
  ScriptedDraft engine_;
  DraftRuns runs_{engine_, {.tokenizer = "tokens", .context_tokens = 256, .runs_max = 4}};
};

TEST_F(Drafting, RunsAheadOfACommittedTextAndRests) {
  begin(key_of(1));
  step(20);
  // Depth 4, the target's own token, and one made meanwhile.
  EXPECT_EQ(hinted(prompt_), truth_behind(prompt_, 6));
  const uint64_t rows = engine_.stats().rows;
  step(5);
  EXPECT_EQ(engine_.stats().rows, rows);
}

TEST_F(Drafting, GoesOnBehindWhatCameTrueWithoutComputingItAgain) {
  begin(key_of(1));
  step(20);
  const auto truth = truth_behind(prompt_, 12);
  commit(key_of(1), 3, {truth[0], truth[1]});
  step(20);
  std::vector<int32_t> committed = prompt_;
  committed.insert(committed.end(), truth.begin(), truth.begin() + 2);
  EXPECT_EQ(hinted(committed), std::vector(truth.begin() + 2, truth.begin() + 8));
  EXPECT_EQ(engine_.redirects, 0u);
  EXPECT_EQ(engine_.stats().rows, 8u);
}

TEST_F(Drafting, GoesAnotherWayWhenTheTargetDoes) {
  begin(key_of(1));
  step(20);
  commit(key_of(1), 3, {truth_behind(prompt_, 1)[0], 77});
  step(20);
  const std::vector<int32_t> committed = {5, 6, 7, truth_behind(prompt_, 1)[0], 77};
  EXPECT_EQ(hinted(committed), truth_behind(committed, 6));
  EXPECT_EQ(engine_.redirects, 1u);
}

TEST_F(Drafting, RepeatedAndOverlappingCommitsChangeNothing) {
  begin(key_of(1));
  step(20);
  const auto truth = truth_behind(prompt_, 3);
  commit(key_of(1), 3, {truth[0]});
  commit(key_of(1), 0, prompt_);
  commit(key_of(1), 1, {6, 7, truth[0], truth[1]});
  commit(key_of(1), 3, {truth[0]});
  EXPECT_EQ(engine_.redirects, 0u);
  step(20);
  std::vector<int32_t> committed = prompt_;
  committed.insert(committed.end(), truth.begin(), truth.begin() + 2);
  EXPECT_EQ(hinted(committed).size(), 6u);
}

TEST_F(Drafting, AsksForWhatIsMissing) {
  begin(key_of(1));
  runs_.take_replies();
  commit(key_of(1), 9, {1, 2});
  const DraftReplies replies = runs_.take_replies();
  ASSERT_EQ(replies.resyncs.size(), 1u);
  EXPECT_EQ(replies.resyncs[0].from_length, 3u);
  EXPECT_EQ(runs_.size(), 1u);
}

TEST_F(Drafting, AContradictionEndsTheRun) {
  begin(key_of(1));
  runs_.take_replies();
  commit(key_of(1), 0, {5, 9});
  EXPECT_TRUE(was_closed(DraftEnd::exhausted));
}

TEST_F(Drafting, AModelThatCannotComputeSaysSo) {
  begin(key_of(1));
  runs_.take_replies();
  engine_.fails_with = "no finite number";
  step(1);
  const auto replies = runs_.take_replies();
  EXPECT_EQ(replies.error, "no finite number");
  ASSERT_EQ(replies.closes.size(), 1u);
  EXPECT_EQ(replies.closes[0].reason, DraftEnd::exhausted);
  EXPECT_TRUE(runs_.take_replies().empty());
}

TEST_F(Drafting, DepthZeroRestsUntilMoreIsWanted) {
  begin(key_of(1));
  step(20);
  commit(key_of(1), 3, {}, 0);
  commit(key_of(1), 3, {1, 2, 3}, 0);
  runs_.take_replies();
  step(20);
  EXPECT_TRUE(runs_.take_replies().hints.empty());
  EXPECT_EQ(runs_.size(), 1u);
  EXPECT_TRUE(engine_.texts.empty()) << "nobody else would get what it held";
  commit(key_of(1), 6, {4});
  step(20);
  const std::vector<int32_t> committed = {5, 6, 7, 1, 2, 3, 4};
  EXPECT_EQ(hinted(committed), truth_behind(committed, 6));
}

TEST_F(Drafting, WhatHardlyComesTrueIsNotRunAheadOf) {
  engine_.confidence = 0.3f;
  begin(key_of(1));
  step(20);
  EXPECT_EQ(hinted(prompt_).size(), 2u) << "0.3 is worth another one, 0.09 is not";
}

TEST_F(Drafting, ASlowTargetIsRunFurtherAheadOf) {
  open(key_of(1));
  runs_.take(schema::DraftCommits{{{key_of(1), 0, prompt_, 4, 3'000'000}}});
  step(20);
  EXPECT_EQ(hinted(prompt_).size(), 4u + 1 + 3);
}

TEST_F(Drafting, SamplesAsTheTargetDoesButWithoutEnd) {
  GenerationRequest request;
  request.sampling = {.temperature = 0.7f, .top_k = 5, .seed = 40};
  request.stop.max_tokens = 3;
  request.stop.stop_token_ids = {4};
  request.tenant = "ann";
  request.cache_salt = "salt";
  request.choices = 3;
  schema::DraftOpen open;
  open.key = {9, {1, 1}, 2, 1};
  open.tokenizer = "tokens";
  open.request = schema::to_wire(request);
  open.prompt_tokens = 3;
  runs_.take(open);
  commit(open.key, 0, {5, 6, 7, 8});
  const GenerationRequest& got = engine_.texts.begin()->second.request;
  EXPECT_EQ(got.prompt, prompt_);
  EXPECT_EQ(got.committed, std::vector<int32_t>{8});
  EXPECT_EQ(got.sampling.temperature, 0.7f);
  EXPECT_EQ(got.sampling.top_k, 5);
  EXPECT_EQ(got.sampling.seed, 42u) << "choice 2 samples with the seed plus 2";
  EXPECT_EQ(got.stop.max_tokens, std::numeric_limits<uint32_t>::max());
  EXPECT_TRUE(got.stop.stop_token_ids.empty());
  EXPECT_TRUE(got.stop.ignore_eos);
  EXPECT_EQ(got.choices, 1u);
  EXPECT_EQ(got.tenant, "ann");
  EXPECT_EQ(got.cache_salt, "salt");
}

TEST_F(Drafting, RefusesAnotherTokenizer) {
  open(key_of(1), 3, "other");
  EXPECT_TRUE(was_closed(DraftEnd::tokenizer));
  EXPECT_EQ(runs_.size(), 0u);
}

TEST_F(Drafting, CommitsOfUnknownRunsAreAnswered) {
  commit(key_of(1), 0, {1});
  EXPECT_TRUE(was_closed(DraftEnd::unknown));
}

TEST_F(Drafting, WhatNobodySpeaksOfAnyMoreIsForgottenAndOpenedAnewIfItsTargetLives) {
  begin(key_of(1));
  begin(key_of(2));
  step(4);
  for (uint32_t beat = 0; beat < limits::draft_run_beats_max; ++beat) {
    runs_.take(DraftBeat{});
    if (beat == 10) commit(key_of(2), 3, {1});
  }
  EXPECT_EQ(runs_.size(), 2u);
  runs_.take(DraftBeat{});
  EXPECT_EQ(runs_.size(), 1u);
  step(4);
  EXPECT_EQ(engine_.texts.size(), 1u) << "the sequence of the other has ended";
  runs_.take_replies();
  commit(key_of(1), 3, {1});
  EXPECT_TRUE(was_closed(DraftEnd::unknown));
}

TEST_F(Drafting, WhoWasCommittedToLeastRecentlyMakesRoom) {
  for (uint64_t session = 1; session <= 4; ++session) begin(key_of(session));
  commit(key_of(1), 3, {1});
  runs_.take_replies();
  open(key_of(5));
  const DraftReplies replies = runs_.take_replies();
  ASSERT_EQ(replies.closes.size(), 1u);
  EXPECT_EQ(replies.closes[0].key, key_of(2));
  EXPECT_EQ(replies.closes[0].reason, DraftEnd::displaced);
  step();
  EXPECT_EQ(runs_.size(), 4u);
  EXPECT_EQ(engine_.texts.size(), 3u) << "the fifth has no text yet";
}

TEST_F(Drafting, AHigherGenerationReplacesARunAndALowerOneIsIgnored) {
  begin(key_of(1, 2));
  open(key_of(1, 1));
  EXPECT_EQ(runs_.size(), 1u);
  commit(key_of(1, 1), 3, {1});
  runs_.take(schema::DraftClose{key_of(1, 1), DraftEnd::finished});
  EXPECT_EQ(runs_.size(), 1u);
  begin(key_of(1, 3));
  step();
  EXPECT_EQ(runs_.size(), 1u);
  EXPECT_EQ(runs_.take_replies().hints.back().key, key_of(1, 3));
  EXPECT_EQ(engine_.texts.size(), 1u);
}

TEST_F(Drafting, ATargetThatIsGoneTakesItsRunsAlong) {
  begin(key_of(1));
  begin(key_of(2));
  begin(key_of(3, 1, 8));
  runs_.take(TargetGone{9});
  step();
  EXPECT_EQ(runs_.size(), 1u);
  EXPECT_EQ(engine_.texts.size(), 1u);
}

TEST_F(Drafting, TheEndOfTheContextEndsTheRun) {
  DraftRuns runs(engine_, {.tokenizer = "tokens", .context_tokens = 256});
  schema::DraftOpen opening;
  opening.key = key_of(1);
  opening.tokenizer = "tokens";
  opening.prompt_tokens = 3;
  runs.take(opening);
  runs.take(schema::DraftCommits{{{key_of(1), 0, std::vector<int32_t>(254, 1), 4, 0}}});
  for (int i = 0; i < 5; ++i) runs.advance(engine_.step(), milliseconds(1));
  EXPECT_EQ(runs.size(), 0u);
  runs.take(opening);
  runs.take(schema::DraftCommits{{{key_of(1), 0, std::vector<int32_t>(400, 1), 4, 0}}});
  EXPECT_EQ(runs.size(), 0u);
  opening.prompt_tokens = 0;
  runs.take(opening);
  runs.take(schema::DraftCommits{{{key_of(1), 0, {1}, 4, 0}}});
  EXPECT_EQ(runs.size(), 0u);
}

class Branching : public Drafting {
 protected:
  Branching() {
    engine_.second = 0.4f;
    engine_.confidence = 0.5f;
  }

  DraftRuns branching_{
      engine_, {.tokenizer = "tokens", .context_tokens = 256, .runs_max = 4, .rows_max = 4}};
  void begin_branching(uint64_t session) {
    schema::DraftOpen open;
    open.key = key_of(session);
    open.tokenizer = "tokens";
    open.prompt_tokens = 3;
    branching_.take(open);
    branching_.take(schema::DraftCommits{{{key_of(session), 0, prompt_, 4, 0}}});
  }
  void step_branching(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) branching_.advance(engine_.step(), milliseconds(1));
  }
};

TEST_F(Branching, FollowsWhatTheTargetMaySayInstead) {
  engine_.wrong_each = 4;  // The second token's first guess is wrong, its second right.
  begin_branching(1);
  step_branching(12);
  EXPECT_GT(engine_.forks, 0u);
  EXPECT_LE(engine_.texts.size(), 4u);
  branching_.take_replies();
  const auto truth = truth_behind(prompt_, 4);
  const uint64_t rows = engine_.stats().rows;
  branching_.take(schema::DraftCommits{{{key_of(1), 3, {truth[0], truth[1]}, 4, 0}}});
  step_branching(1);
  const schema::DraftHint hint = branching_.take_replies().hints.back();
  EXPECT_EQ(hint.base_length, 5u);
  ASSERT_FALSE(hint.branches.empty());
  EXPECT_EQ(hint.branches[0].token, truth[2]) << "known before the target had chosen";
  EXPECT_LE(engine_.stats().rows, rows + 4);
}

TEST_F(Branching, OneThatIsToBeTheTargetsOwnChoiceIsToldWithTheOthersLikely) {
  begin_branching(1);
  step_branching(1);
  const GenerationRequest& drafting = engine_.texts.begin()->second.request;
  EXPECT_EQ(drafting.draft, DraftKind::same_noise);
  EXPECT_GT(drafting.logprobs, 1);
}

TEST_F(Branching, RowsAreSharedAndNoSequenceIsLeftBehind) {
  begin_branching(1);
  step_branching(10);
  EXPECT_EQ(engine_.stats().running + engine_.stats().parked, 4u);
  begin_branching(2);
  branching_.take(schema::DraftCommits{{{key_of(1), 3, {8}, 4, 0}}});
  step_branching(10);
  std::map<uint64_t, uint32_t> active;
  for (const auto& [key, text] : engine_.texts) active[key.session] += text.parked ? 0 : 1;
  for (const auto& [session, count] : active) EXPECT_LE(count, 2u) << session;
  branching_.take(schema::DraftClose{key_of(1), DraftEnd::finished});
  branching_.take(schema::DraftClose{key_of(2), DraftEnd::finished});
  step_branching(2);
  EXPECT_TRUE(engine_.texts.empty());
  EXPECT_EQ(branching_.size(), 0u);
}

TEST_F(Branching, WithoutRoomForMoreSequencesItFollowsFewer) {
  engine_.sequences_max = 2;
  begin_branching(1);
  step_branching(12);
  EXPECT_LE(engine_.texts.size(), 2u);
  EXPECT_FALSE(branching_.take_replies().hints.back().branches.empty());
}

TEST_F(Branching, WhatIsToBeVerifiedByRejectionIsOneChainWhateverItIs) {
  GenerationRequest request;
  request.sampling.temperature = 0.7f;
  request.speculation.method = SpeculationMethod::reject_sampling;
  schema::DraftOpen open;
  open.key = key_of(1);
  open.tokenizer = "tokens";
  open.request = schema::to_wire(request);
  open.prompt_tokens = 3;
  branching_.take(open);
  engine_.confidence = 0.01f;
  branching_.take(schema::DraftCommits{{{key_of(1), 0, prompt_, 4, 0}}});
  EXPECT_EQ(engine_.texts.begin()->second.request.draft, DraftKind::drawn);
  step_branching(20);
  const auto branches = branching_.take_replies().hints.back().branches;
  ASSERT_EQ(branches.size(), 6u);
  for (size_t i = 0; i < branches.size(); ++i) {
    EXPECT_EQ(branches[i].parent, static_cast<int32_t>(i) - 1);
    EXPECT_EQ(branches[i].drawn_from, engine_.drawn_from(branches[i].token));
  }
}

/// A target and a draft that errs now and then, whose messages are lost, repeated and late: each
/// hint is what the draft says behind the text that it names, and in the end it is up to date.
TEST_F(Drafting, RandomHistoriesEndUpToDate) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    ScriptedDraft engine(1 << 12);
    engine.wrong_each = 3 + random.below(9);
    engine.confidence = 0.3f + 0.6f * random.uniform();
    engine.second = random.chance(0.5f) ? 0.3f : 0;
    engine.sequences_max = 2 + random.below(8);
    DraftRuns runs(
        engine,
        {.tokenizer = "tokens", .context_tokens = 1 << 12, .rows_max = 1 + random.below(6)});
    schema::DraftOpen opening;
    opening.key = key_of(seed);
    opening.tokenizer = "tokens";
    opening.prompt_tokens = 3;
    runs.take(opening);
    std::vector<int32_t> text = prompt_;
    std::vector<schema::DraftCommits> late;
    uint32_t told = 0;
    uint32_t hints = 0;
    const auto tell = [&] {
      const std::vector<int32_t> news(text.begin() + told, text.end());
      return schema::DraftCommits{{{key_of(seed), told, news, 1 + random.below(8), 0}}};
    };
    for (int i = 0; i < 300; ++i) {
      const schema::DraftCommits message = tell();
      if (!random.chance(0.2f)) runs.take(message);
      told = static_cast<uint32_t>(text.size());
      late.push_back(message);
      if (random.chance(0.2f)) runs.take(late[random.below(static_cast<uint32_t>(late.size()))]);
      runs.advance(engine.step(), milliseconds(1));
      const DraftReplies replies = runs.take_replies();
      ASSERT_TRUE(replies.closes.empty()) << seed;
      for (const schema::DraftResync& resync : replies.resyncs) told = resync.from_length;
      for (const schema::DraftHint& hint : replies.hints) {
        ++hints;
        ASSERT_LE(hint.base_length, text.size());
        const std::vector<int32_t> base(text.begin(), text.begin() + hint.base_length);
        ASSERT_EQ(hint.base_hash, model::text_hash(model::k_empty_text, base));
        ASSERT_LE(hint.branches.size(), model::k_hint_nodes_max);
      }
      if (random.chance(0.7f)) {
        for (const int32_t token : truth_behind(text, 1 + random.below(3))) text.push_back(token);
      }
    }
    told = 0;
    runs.take(tell());
    for (int i = 0; i < 40; ++i) runs.advance(engine.step(), milliseconds(1));
    EXPECT_GT(hints, 100u);
    // One of its sequences at least has the whole text.
    const bool is_known =
        std::any_of(engine.texts.begin(), engine.texts.end(), [&](const auto& entry) {
          const auto& output = entry.second.output;
          return output.size() > text.size() - 3 &&
                 std::equal(text.begin() + 3, text.end(), output.begin());
        });
    EXPECT_TRUE(is_known) << seed;
  }
}

}  // namespace
}  // namespace outrider::actors
