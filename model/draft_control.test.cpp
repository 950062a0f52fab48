#include "model/draft_control.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "base/limits.hpp"
#include "base/philox.hpp"
#include "model/draft_chain.test.hpp"

namespace outrider::model {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

/// Steps take as long whatever their rows, or each row as long as a step.
StepCosts costs(bool rows_are_free) {
  return {.rows = {1, 512},
          .contexts = {0},
          .times = {milliseconds(1), milliseconds(rows_are_free ? 1 : 512)}};
}

/// Sequences that decode, each with a chain of hints of one confidence.
class World {
 public:
  World(const SpeculationOptions& options, bool rows_are_free, size_t sequences = 1)
      : costs_(costs(rows_are_free)), control_(options), drafts_(sequences, new_request()) {
    control_.set_costs(costs_);
  }

  void begin_requests() { drafts_.assign(drafts_.size(), new_request()); }
  /// One step, in which the first `true_hints` of each path come true.
  std::vector<uint32_t> step(uint8_t confidence, size_t true_hints) {
    const std::vector<HintBranch> chain = hint_chain(2, confidence);
    std::vector<DecodingSequence> decoding;
    for (Drafts& drafts : drafts_) {
      drafts.trie = HintTrie(0, k_empty_text);
      drafts.trie.insert({0, k_empty_text, chain, HintSource::draft_model});
      control_.find_path(drafts, 8);
      decoding.push_back({0, &drafts});
    }
    std::vector<uint32_t> depths;
    control_.choose(decoding, {}, 512, depths);
    std::vector<StepShare> shares;
    for (size_t i = 0; i < drafts_.size(); ++i) {
      drafts_[i].path.resize(depths[i]);
      const size_t drawn = commit_chain(drafts_[i], true_hints, depths[i]);
      if (depths[i] > 0) control_.learn(drawn);
      shares.push_back({1 + depths[i], 0});
    }
    control_.observe(shares, costs_.step(shares));
    return depths;
  }
  uint32_t verified(int steps, uint8_t confidence, size_t true_hints) {
    uint32_t sum = 0;
    for (int i = 0; i < steps; ++i) {
      const auto depths = step(confidence, true_hints);
      sum = std::accumulate(depths.begin(), depths.end(), sum);
    }
    return sum;
  }

 private:
  Drafts new_request() { return {0, k_empty_text, control_.acceptance_of(0)}; }

  StepCosts costs_;
  DraftControl control_;
  std::vector<Drafts> drafts_;
};

TEST(DraftControl, HintsCouldPayWhereRowsAreCheapAndThereIsRoom) {
  DraftControl control({.depth_max = 8});
  const std::vector<DecodingSequence> takes_two = {{0, nullptr, 2}};
  EXPECT_FALSE(control.could_pay(takes_two, {}, 16)) << "nothing was measured";
  control.set_costs(costs(true));
  EXPECT_TRUE(control.could_pay(takes_two, {}, 16));
  EXPECT_FALSE(control.could_pay(takes_two, {}, 0));
  EXPECT_FALSE(control.could_pay(std::vector<DecodingSequence>{{0, nullptr, 0}}, {}, 16));
  control.set_costs(costs(false));
  EXPECT_TRUE(control.could_pay(takes_two, {}, 16)) << "a row costs as much as a step, it is said";
  const std::vector<DecodingSequence> take_two(64, {0, nullptr, 2});
  EXPECT_FALSE(control.could_pay(take_two, {}, 16)) << "nor would cheaper ones pay";
  DraftControl fixed({.depth_max = 8, .fixed_depth = true});
  EXPECT_TRUE(fixed.could_pay(takes_two, {}, 16)) << "whatever it costs";
}

TEST(DraftControl, WhetherDrawnHintsAreVerifiedDoesNotDependOnWhatWasDrawn) {
  // Rejected by one request, then offered to another: as many are verified whatever they claim.
  DraftControl control({.depth_max = 8});
  control.set_costs(
      {.rows = {1, 16}, .contexts = {0}, .times = {milliseconds(4), milliseconds(9)}});
  std::vector<std::vector<uint32_t>> seen;
  for (const uint16_t weight : {uint16_t{1}, uint16_t{30'000}, uint16_t{65'000}}) {
    DraftControl own = control;
    Drafts drafts(0, k_empty_text);
    drafts.by_rejection = true;
    std::vector<uint32_t>& depths = seen.emplace_back();
    for (int step = 0; step < 40; ++step) {
      const auto rest = static_cast<uint16_t>(k_draft_weights - weight);
      const auto odds =
          std::make_shared<DraftDistribution>(DraftDistribution{{{7, weight}, {8, rest}}});
      const auto confidence = static_cast<uint8_t>(weight / 258);
      const std::vector<HintBranch> chain = {{-1, 7, confidence, odds}, {0, 8, confidence, odds}};
      drafts.trie = HintTrie(0, k_empty_text);
      drafts.trie.insert({0, k_empty_text, chain, HintSource::draft_model});
      own.find_path(drafts, 8);
      std::vector<uint32_t> depth;
      own.choose(std::vector<DecodingSequence>{{0, &drafts}}, {}, 15, depth);
      depths.push_back(depth[0]);
      drafts.path.resize(depth[0]);
      commit_chain(drafts, step % 3 == 0 ? 0 : 2, depth[0]);
    }
    EXPECT_GT(std::accumulate(depths.begin(), depths.end(), 0u), 20u);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(DraftControl, WhetherDrawnHintsAreVerifiedDoesNotDependOnWhoSaidTheSame) {
  const auto odds = std::make_shared<DraftDistribution>(
      DraftDistribution{{{7, 100}, {8, uint16_t{k_draft_weights - 100}}}});
  const std::vector<HintBranch> drawn = {{-1, 7, 40, odds}};
  const std::vector<HintBranch> text = {{-1, 7, 230}};
  Drafts drafts(0, k_empty_text);
  drafts.by_rejection = true;
  drafts.trie.insert({0, k_empty_text, text, HintSource::own_text});
  drafts.trie.insert({0, k_empty_text, drawn, HintSource::draft_model});
  DraftControl({}).find_path(drafts, 8);
  ASSERT_EQ(drafts.path.size(), 1u);
  EXPECT_EQ(drafts.path[0].source, HintSource::draft_model);
}

/// One sequence with hints that all come true, where 1, 2 and 4 rows were measured to take so long.
class OneSequence {
 public:
  OneSequence(Duration one, Duration two, Duration four, uint32_t hints) {
    control_.set_costs({.rows = {1, 2, 4}, .contexts = {0}, .times = {one, two, four}});
    chain_ = hint_chain(hints, 250);
  }
  void has_hints(bool has) { has_hints_ = has; }
  /// How many the next step verifies.
  uint32_t choose(const PromptRows& beside = {}) {
    drafts_.trie = HintTrie(0, k_empty_text);
    if (has_hints_) drafts_.trie.insert({0, k_empty_text, chain_, HintSource::own_text});
    control_.find_path(drafts_, 8);
    std::vector<uint32_t> depths;
    control_.choose(std::vector<DecodingSequence>{{0, &drafts_, 8}}, beside, 16, depths);
    drafts_.path.resize(depths[0]);
    const size_t drawn = commit_chain(drafts_, chain_.size(), depths[0]);
    if (depths[0] > 0) control_.learn(drawn);
    return depths[0];
  }
  void take(uint32_t hints, Duration time) {
    control_.observe(std::vector<StepShare>{{1 + hints, 0}}, time);
  }
  void pass(Duration time) { control_.pass(time); }
  /// How many a step verifies, which takes `time(hints)`.
  template <typename Time>
  uint32_t step(const Time& time) {
    const uint32_t hints = choose();
    take(hints, time(hints));
    return hints;
  }

 private:
  DraftControl control_{{.depth_max = 8}};
  Drafts drafts_{0, k_empty_text};
  std::vector<HintBranch> chain_;
  bool has_hints_ = true;
};

TEST(DraftControl, DrawnHintsAreBelievedAsTheyCameTrueWhateverTheyClaim) {
  for (const uint8_t claimed : {uint8_t{3}, uint8_t{250}}) {
    for (const bool come_true : {false, true}) {
      Drafts drafts(0, k_empty_text);
      drafts.by_rejection = true;
      DraftControl control({.depth_max = 8});
      const auto odds = std::make_shared<DraftDistribution>(
          DraftDistribution{{{7, 100}, {8, uint16_t{k_draft_weights - 100}}}});
      const std::vector<HintBranch> drawn = {{-1, 7, claimed, odds}};
      for (int step = 0; step < 100; ++step) {
        drafts.trie = HintTrie(0, k_empty_text);
        drafts.trie.insert({0, k_empty_text, drawn, HintSource::other});
        control.find_path(drafts, 8);
        if (step < 99) drafts.commit(come_true ? 7 : 1);
      }
      ASSERT_EQ(drafts.survival.size(), 1u);
      EXPECT_NEAR(drafts.survival[0], come_true ? 0.95f : 0.05f, 0.05f);
    }
  }
}

TEST(DraftControl, WhatIsDrawnBehindOtherHintsWaitsForItsTurn) {
  Drafts drafts(0, k_empty_text);
  const auto odds = std::make_shared<DraftDistribution>(
      DraftDistribution{{{8, uint16_t{k_draft_weights - 100}}, {9, 100}}});
  const std::vector<HintBranch> branches = {{-1, 7, 80}, {0, 9, 250, odds}};
  drafts.trie.insert({0, k_empty_text, branches, HintSource::draft_model});
  DraftControl({.depth_max = 8}).find_path(drafts, 8);
  EXPECT_EQ(drafts.path.size(), 2u);
  drafts.by_rejection = true;
  DraftControl({.depth_max = 8}).find_path(drafts, 8);
  EXPECT_EQ(drafts.path.size(), 1u);
}

TEST(DraftControl, RivalsOfOneSourceTakeNothingFromItsBest) {
  for (const int32_t rivals : {0, 1, 7}) {
    Drafts drafts(0, k_empty_text);
    std::vector<HintBranch> branches;
    for (int32_t i = 0; i < rivals; ++i) branches.push_back({-1, 20 + i, 3});
    branches.push_back({-1, 7, 30});
    for (int32_t i = 0; i < rivals; ++i) branches.push_back({-1, 30 + i, uint8_t{30}});
    for (int step = 0; step < 200; ++step) {
      drafts.trie = HintTrie(0, k_empty_text);
      drafts.trie.insert({0, k_empty_text, branches, HintSource::draft_model});
      drafts.commit(step % 2 == 0 ? 7 : 1);
    }
    EXPECT_NEAR(drafts.believed(HintSource::draft_model, 30), 0.5f, 0.1f) << rivals << " rivals";
  }
}

/// A source is sure of 100 and less sure of 7: what it says comes true in so many of ten cases.
TEST(DraftControl, WhatIsFollowedIsKnownThoughItsSourceIsSurerOfSomethingElse) {
  for (const uint8_t less_sure : {uint8_t{220}, uint8_t{160}, uint8_t{40}}) {
    DraftControl control({});
    control.set_costs({.rows = {1, 2}, .contexts = {0}, .times = {10ms, 11ms}});
    Drafts drafts(0, k_empty_text);
    const std::vector<HintBranch> branches = {
        {-1, 100, 255}, {-1, 7, less_sure}, {-1, 9, less_sure}};
    // How often each was verified in the last hundred of a thousand steps.
    const auto verified = [&](int sure_true, int other_true) {
      std::array<int, 2> out{};
      for (int step = 0; step < 1'000; ++step) {
        drafts.trie = HintTrie(0, k_empty_text);
        drafts.trie.insert({0, k_empty_text, branches, HintSource::draft_model});
        control.find_path(drafts, 8);
        std::vector<uint32_t> depths;
        control.choose(std::vector<DecodingSequence>{{0, &drafts, 8}}, {}, 16, depths);
        if (depths[0] > 0 && step >= 900) ++out[drafts.path[0].token == 100 ? 0 : 1];
        const int of_ten = step * 7 % 10;
        drafts.commit(of_ten < sure_true ? 100 : of_ten < sure_true + other_true ? 7 : 1);
      }
      return out;
    };
    using Count = std::array<int, 2>;
    EXPECT_EQ(verified(0, 0), (Count{0, 0})) << "claims " << int{less_sure};
    EXPECT_EQ(verified(0, 4), (Count{0, 100})) << "claims " << int{less_sure};
    EXPECT_EQ(verified(7, 3), (Count{100, 0})) << "claims " << int{less_sure};
  }
}

/// Whoever does not verify by rejection takes what was drawn for a hint like any other.
TEST(DraftControl, DrawnHintsOfOtherRequestsAreBelievedByWhatTheyClaim) {
  Drafts drafts(0, k_empty_text);
  const auto odds = std::make_shared<DraftDistribution>(
      DraftDistribution{{{7, 100}, {8, uint16_t{k_draft_weights - 100}}}});
  const std::vector<HintBranch> drawn = {{-1, 7, 30, odds}};
  const float of_others = drafts.believed(HintSource::draft_model, 160);
  for (int step = 0; step < 100; ++step) {
    drafts.trie = HintTrie(0, k_empty_text);
    drafts.trie.insert({0, k_empty_text, drawn, HintSource::draft_model});
    drafts.commit(7);
  }
  EXPECT_GT(drafts.believed(HintSource::draft_model, 30), 0.9f);
  EXPECT_EQ(drafts.believed(HintSource::draft_model, 160), of_others);
}

TEST(DraftControl, CostsThatCannotBeTrueAreTriedNowAndThenUntilTheyAre) {
  OneSequence world(10ms, 22ms, 44ms, 3);
  const auto tried = [&](int steps) {
    uint32_t sum = 0;
    for (int i = 0; i < steps; ++i) {
      sum += world.step([](uint32_t hints) { return milliseconds(10 + hints); }) > 0 ? 1 : 0;
    }
    return sum;
  };
  EXPECT_EQ(tried(880), 0u)
      << "five tries, each hoped to take 9 ms more, are half a percent of 9 s";
  EXPECT_GT(tried(200), 5u);
  EXPECT_GE(tried(100), 94u) << "all but each seventeenth step";
}

TEST(DraftControl, EachSeriesOfTriesIsSavedForAsAWhole) {
  // As dear as it is said: the first two cost more than was saved for five that are hoped for.
  OneSequence world(10ms, 22ms, 44ms, 3);
  std::vector<int> tried_at;
  for (int step = 0; step < 12'000; ++step) {
    const auto time = [](uint32_t hints) { return hints == 0 ? 10ms : 44ms; };
    if (world.step(time) > 0) tried_at.push_back(step);
  }
  ASSERT_GE(tried_at.size(), 6u);
  for (size_t i = 1; i < tried_at.size(); ++i) {
    const int since = tried_at[i] - tried_at[i - 1];
    EXPECT_TRUE(since == 2 || since > 880) << since << " steps before step " << tried_at[i];
  }
}

TEST(DraftControl, WhatADisturbedTryTookIsNotOwedForEver) {
  // Tries of 0.4 s more than without: five of them would be owed for 40,000 steps.
  OneSequence world(10ms, 200ms, 400ms, 3);
  int tries = 0;
  for (int step = 0; tries < 5; ++step) {
    ASSERT_LT(step, 20'000);
    tries += world.step([](uint32_t hints) { return hints == 0 ? 10ms : 400ms; }) > 0 ? 1 : 0;
  }
  int until_next = 0;
  for (uint32_t hints = 0; hints == 0 && until_next < 10'000; ++until_next) {
    hints = world.step([](uint32_t verified) { return milliseconds(10 + verified); });
  }
  EXPECT_GT(until_next, 2'000) << "some of it is";
  EXPECT_LT(until_next, 3'000);
}

TEST(DraftControl, ATryIsChargedNoMoreThanItWasKnownToTake) {
  OneSequence world(10ms, 22ms, 44ms, 3);
  uint32_t hints = 0;
  for (int step = 0; hints == 0; ++step) {
    ASSERT_LT(step, 1'000);
    // Others had the machine.
    hints = world.step(
        [](uint32_t verified) { return verified == 0 ? Duration(10ms) : Duration(10s); });
  }
  EXPECT_EQ(world.choose(), 0u);
  world.take(0, 10ms);
  EXPECT_EQ(world.choose(), 3u) << "the series goes on";
}

TEST(DraftControl, WhatALongTimeWithoutHintsSavesIsBounded) {
  OneSequence world(10ms, 22ms, 44ms, 3);
  const auto lost_ms = [&](int steps) {
    uint32_t sum = 0;
    for (int i = 0; i < steps; ++i) {
      const auto more_ms = [](uint32_t hints) { return std::array{0u, 12u, 23u, 34u}[hints]; };
      sum += more_ms(world.step([&](uint32_t hints) { return milliseconds(10 + more_ms(hints)); }));
    }
    return sum;
  };
  world.has_hints(false);
  lost_ms(200'000);
  world.has_hints(true);
  const uint32_t lost = lost_ms(2'000);
  EXPECT_GT(lost, 1'000u) << "it saves something";
  EXPECT_LT(lost, 1'280u + 120u + 34u) << "128 steps, what 2000 steps save, and a try";
}

TEST(DraftControl, BesidePromptsNothingIsTried) {
  OneSequence world(10ms, 22ms, 44ms, 3);
  for (int step = 0; step < 20'000; ++step) {
    ASSERT_EQ(world.choose({1, 64}), 0u) << "step " << step;
    world.pass(10ms);
  }
}

/// Whether one sequence has its one hint verified beside such prompts.
bool verifies_beside(const PromptRows& prompts, const StepCosts& costs) {
  DraftControl control({.depth_max = 8});
  control.set_costs(costs);
  Drafts drafts(0, k_empty_text);
  drafts.trie.insert({0, k_empty_text, hint_chain(1, 250), HintSource::own_text});
  control.find_path(drafts, 8);
  std::vector<uint32_t> depths;
  control.choose(std::vector<DecodingSequence>{{0, &drafts, 8}}, prompts, 16, depths);
  return depths[0] == 1;
}

TEST(DraftControl, BesidePromptsNoHintIsCheaperThanARowOfThem) {
  StepCosts free = costs(true);
  free.prefill_row_ns = 1'000;
  EXPECT_TRUE(verifies_beside({1, 1}, free));
  free.prefill_row_ns = 10'000'000;
  EXPECT_FALSE(verifies_beside({1, 1}, free)) << "one row of the prompt takes ten steps";
}

TEST(DraftControl, WhoWaitsForAPromptIsSlowedByHintsToo) {
  const StepCosts dear = {
      .rows = {1, 2}, .contexts = {0}, .times = {10ms, 12ms}, .prefill_row_ns = 2'000'000};
  EXPECT_TRUE(verifies_beside({1, 1}, dear));
  EXPECT_FALSE(verifies_beside({64, 1}, dear));
}

TEST(DraftControl, NoStepIsPlainToLearnNothing) {
  OneSequence world(2000us, 2020us, 2040us, 1);
  const auto count_plain = [&](int steps, bool are_observed, const PromptRows& beside) {
    int plain = 0;
    for (int step = 0; step < steps; ++step) {
      const uint32_t hints = world.choose(beside);
      plain += hints == 0 ? 1 : 0;
      if (are_observed) world.take(hints, 2ms);
    }
    return plain;
  };
  EXPECT_EQ(count_plain(200, false, {}), 0);
  for (int step = 0; step < 9; ++step) world.take(1, 2ms);
  EXPECT_EQ(count_plain(200, false, {1, 64}), 0) << "beside prompts no step tells what it takes";
  count_plain(300, true, {});
  EXPECT_EQ(count_plain(330, true, {}), 10) << "half of the tokens are hints: each 33rd step";
}

TEST(DraftControl, OfALongPromptTheEndIsIndexedAndAllThatFollows) {
  std::vector<int32_t> prompt(limits::own_text_prompt_tokens_max + 100);
  std::iota(prompt.begin(), prompt.end(), 0);
  const std::vector<int32_t> output = {1, 2};
  Drafts drafts(0, k_empty_text);
  drafts.commit(5);
  EXPECT_EQ(drafts.own_text.size(), 0u) << "nobody drafts from it";
  drafts.index_own_text(prompt, output);
  drafts.commit(3);
  EXPECT_EQ(drafts.own_text.size(), limits::own_text_prompt_tokens_max + 3);
  EXPECT_EQ(drafts.own_text.tokens().front(), 100);
  EXPECT_EQ(drafts.own_text.tokens().back(), 3);
  drafts.forget_own_text();
  drafts.commit(4);
  EXPECT_EQ(drafts.own_text.bytes(), 0u);
}

TEST(DraftControl, VerifiesWhatIsFree) {
  World world({}, true);
  EXPECT_EQ(world.step(200, 2), std::vector<uint32_t>{2});
}

TEST(DraftControl, WithoutCostsOnlyFixedDepthsDraft) {
  DraftControl measured({});
  EXPECT_TRUE(measured.is_off());
  measured.set_costs(costs(true));
  EXPECT_FALSE(measured.is_off());
  EXPECT_FALSE(DraftControl({.fixed_depth = true}).is_off());
  EXPECT_TRUE(DraftControl({.depth_max = 0, .fixed_depth = true}).is_off());
}

TEST(DraftControl, BelievesWhatCameTrueAndNotWhatIsClaimed) {
  World liar({}, true);
  EXPECT_GT(liar.verified(100, 250, 0), 0u);
  EXPECT_EQ(liar.step(250, 0), std::vector<uint32_t>{0});
  World modest({}, true);
  EXPECT_EQ(modest.step(10, 2), std::vector<uint32_t>{0}) << "a twenty-fifth";
  modest.verified(50, 10, 2);
  EXPECT_EQ(modest.step(10, 2), std::vector<uint32_t>{2}) << "though none was verified";
}

/// Also where it says now and then what the other one does, which is to the other's credit, too;
/// and where it is right more often it is followed, however modest.
TEST(DraftControl, OfTwoSourcesTheOneThatIsRightIsFollowed) {
  for (const bool fixed_depth : {false, true}) {
    for (const uint8_t claimed : {uint8_t{255}, uint8_t{20}}) {
      for (const float right : {0.0f, 0.3f, 0.95f}) {
        DraftControl control({.fixed_depth = fixed_depth});
        control.set_costs(costs(true));
        Drafts drafts(0, k_empty_text);
        Random random(1);
        uint32_t came_true = 0;
        for (int step = 0; step < 2'000; ++step) {
          const bool text_is_right = random.chance(0.7f);
          const bool draft_is_right = random.chance(right);
          const std::vector<HintBranch> text = {{-1, text_is_right ? 7 : 8, 200}};
          const std::vector<HintBranch> draft = {{-1, draft_is_right ? 7 : 9, claimed}};
          drafts.trie = HintTrie(0, k_empty_text);
          drafts.trie.insert({0, k_empty_text, draft, HintSource::draft_model});
          drafts.trie.insert({0, k_empty_text, text, HintSource::own_text});
          control.find_path(drafts, 8);
          std::vector<uint32_t> depths;
          control.choose(std::vector<DecodingSequence>{{0, &drafts, 8}}, {}, 16, depths);
          came_true += depths[0] > 0 && drafts.path[0].token == 7 ? 1 : 0;
          drafts.commit(7);
        }
        EXPECT_GT(came_true, 1'950 * std::max(0.7f, right))
            << "claims " << int{claimed} << ", is right " << right;
      }
    }
  }
}

TEST(DraftControl, NothingThatIsRareIsVerifiedAndAllOfItIsKnown) {
  World world({}, true, 64);
  world.verified(200, 5, 0);
  EXPECT_EQ(world.verified(200, 5, 0), 0u) << "no hint is verified to see whether it comes true";
  world.verified(100, 5, 2);
  EXPECT_GT(world.verified(100, 5, 2), 64u * 95 * 2);
}

TEST(DraftControl, FixedDepthsStopBeforeWhatComesTrueTooRarely) {
  World world({.fixed_depth = true, .accept_min = 0.5f}, false);
  EXPECT_EQ(world.step(250, 0), std::vector<uint32_t>{2});
  world.verified(50, 250, 0);
  EXPECT_EQ(world.step(250, 0), std::vector<uint32_t>{0});
}

TEST(DraftControl, ChosenDepthsStopBeforeWhatComesTrueTooRarely) {
  for (const float accept_min : {0.0f, 0.9f}) {
    World world({.accept_min = accept_min}, true);
    uint32_t verified = 0;
    for (int step = 0; step < 200; ++step) {
      const uint32_t hints = world.step(200, step % 2 == 0 ? 2 : 0)[0];
      if (step >= 100) verified += hints;
    }
    if (accept_min == 0) {
      EXPECT_GT(verified, 150u);
    } else {
      EXPECT_EQ(verified, 0u);
    }
  }
}

TEST(DraftControl, HintsOfShortRequestsGetAnotherChance) {
  World world({.depth_max = 2}, true);
  const auto verified = [&](int requests, size_t true_hints) {
    uint32_t sum = 0;
    for (int i = 0; i < requests; ++i) {
      world.begin_requests();
      sum += world.verified(16, 250, true_hints);
    }
    return sum;
  };
  verified(2'000, 0);
  EXPECT_LT(verified(100, 0), 100u);
  verified(200, 2);
  EXPECT_GT(verified(100, 2), 3'000u);
}

TEST(DraftControl, OneTenantsHintsAreNoEvidenceForAnothers) {
  DraftControl control(SpeculationOptions{});
  control.set_costs(costs(true));
  const std::vector<HintBranch> chain = {{-1, 7, 250}};
  const auto survival = [&](uint64_t tenant, int steps, bool true_hints) {
    Drafts drafts(0, k_empty_text, control.acceptance_of(tenant));
    for (int i = 0; i <= steps; ++i) {
      drafts.trie = HintTrie(0, k_empty_text);
      drafts.trie.insert({0, k_empty_text, chain, HintSource::own_text});
      control.find_path(drafts, 8);
      if (i < steps) drafts.commit(true_hints ? 7 : 1);
    }
    return drafts.survival.at(0);
  };
  const float before = survival(1, 0, true);
  survival(2, 500, false);
  EXPECT_EQ(survival(1, 0, true), before);
  EXPECT_LT(survival(2, 0, true), before / 2);
}

TEST(DraftControl, ManyTenantsTakeNoMoreMemoryThanABound) {
  DraftControl control(SpeculationOptions{});
  const auto kept = control.acceptance_of(0);
  const std::weak_ptr<Acceptance> other = control.acceptance_of(1);
  for (uint64_t tenant = 2; tenant <= limits::draft_tenants_max; ++tenant) {
    control.acceptance_of(tenant);
  }
  EXPECT_TRUE(other.expired());
  EXPECT_EQ(control.acceptance_of(0), kept);
}

}  // namespace
}  // namespace outrider::model
