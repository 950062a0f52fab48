#include <gtest/gtest.h>

#include <algorithm>

#include "model/engine_world.test.hpp"
#include "model/hint_trie.hpp"
#include "model/step_costs.hpp"

/// Hints through the engine: they save steps when they come true, and change nothing else.
namespace outrider::model {
namespace {

EngineOptions drafting(uint32_t depth = 8) {
  EngineOptions options = EngineWorld::small();
  options.speculation = {.depth_max = depth, .fixed_depth = true};
  return options;
}

/// Prompt and output of a request, as drafters know it.
struct Text {
  std::vector<int32_t> tokens;

  Text(const GenerationRequest& request, const std::vector<int32_t>& output)
      : tokens(request.prompt) {
    tokens.insert(tokens.end(), output.begin(), output.end());
  }
  /// Tokens behind as many as `before` has, as a chain that follows it.
  HintOutcome give(Engine& engine, RequestKey key, std::span<const int32_t> before, uint32_t count,
                   uint32_t choice = 0) const {
    const auto first = static_cast<uint32_t>(before.size());
    std::vector<HintBranch> branches;
    for (uint32_t i = first; i < std::min<size_t>(tokens.size(), first + count); ++i) {
      branches.push_back({static_cast<int32_t>(branches.size()) - 1, tokens[i], 200});
    }
    return engine.hint(
        key, choice,
        {.base_length = first, .base_hash = text_hash(k_empty_text, before), .branches = branches});
  }
};

Heard plain(const GenerationRequest& request) {
  return EngineWorld().alone(request)[0];
}

/// With hints of `text`, each time the tokens after the known ones.
Heard hinted(EngineWorld& world, const GenerationRequest& request, const Text& text) {
  const RequestKey key = world.submit(request);
  while (!world.engine->idle()) {
    const Text known(request, world.heard[key][0].ids());
    text.give(*world.engine, key, known.tokens, 20);
    world.step();
  }
  return world.heard[key][0];
}

void expect_same(const Heard& a, const Heard& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.error, b.error);
}

GenerationRequest sampled(uint64_t seed) {
  GenerationRequest request = EngineWorld::request(seed, 20, 40);
  request.logprobs = 3;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
  request.sampling.repetition_penalty = 1.2f;
  request.sampling.presence_penalty = 0.5f;
  request.sampling.frequency_penalty = 0.3f;
  request.sampling.top_p = 0.95f;
  return request;
}

TEST(EngineHints, TrueHintsSaveStepsAndChangeNothing) {
  for (const uint64_t seed : {1, 2}) {
    const GenerationRequest request = sampled(seed);
    const Heard expected = plain(request);
    EngineWorld world(drafting());
    expect_same(hinted(world, request, Text(request, expected.ids())), expected);
    const EngineStats stats = world.engine->stats();
    // The prompt's step gives one token, each other one nine: 1 + 4 * 9 + 3.
    EXPECT_EQ(stats.steps, 6u);
    EXPECT_EQ(stats.hints.accepted_tokens, stats.hints.draft_tokens);
    EXPECT_EQ(stats.hints.drafts, 5u);
    EXPECT_EQ(stats.hints.accepted_at[0], 5u);
    EXPECT_EQ(stats.generated_tokens, 40u);
    EXPECT_EQ(stats.blocks_free, stats.blocks_total);
  }
}

TEST(EngineHints, WrongHintsChangeNothing) {
  const GenerationRequest request = sampled(3);
  const Heard expected = plain(request);
  std::vector<int32_t> wrong = expected.ids();
  for (size_t i = 0; i < wrong.size(); i += 4) wrong[i] ^= 1;
  EngineWorld world(drafting());
  expect_same(hinted(world, request, Text(request, wrong)), expected);
  const HintCounters& hints = world.engine->stats().hints;
  EXPECT_GT(hints.accepted_tokens, 10u);
  EXPECT_LT(hints.accepted_tokens, hints.draft_tokens);
}

TEST(EngineHints, HintsThatRarelyComeTrueAreNoLongerVerified) {
  const GenerationRequest request = sampled(3);
  const Heard expected = plain(request);
  std::vector<int32_t> wrong = expected.ids();
  for (int32_t& id : wrong) id ^= 1;
  EngineOptions options = drafting();
  options.speculation.accept_min = 0.5f;
  EngineWorld world(options);
  expect_same(hinted(world, request, Text(request, wrong)), expected);
  const HintCounters& hints = world.engine->stats().hints;
  EXPECT_GE(hints.drafts, 1u);
  EXPECT_LE(hints.drafts, 8u);
}

TEST(EngineHints, TheEndIsTheSameWhereHintsReachBeyondIt) {
  GenerationRequest request = sampled(5);
  const Heard expected = plain(request);
  for (uint32_t end = 10; end < 20; ++end) {
    request.stop.max_tokens = 40;
    request.stop.stop_token_ids = {expected.tokens[end].id};
    request.stop.min_tokens = end % 2 == 0 ? end - 2 : 0;
    const Heard stopped = plain(request);
    EngineWorld world(drafting());
    expect_same(hinted(world, request, Text(request, expected.ids())), stopped);
    request.stop.stop_token_ids = {};
    request.stop.max_tokens = end;
    EngineWorld shorter(drafting());
    expect_same(hinted(shorter, request, Text(request, expected.ids())), plain(request));
  }
}

TEST(EngineHints, WhatHintsSayBeyondTheEndIsNotCountedAsAccepted) {
  GenerationRequest request = sampled(5);
  const Heard expected = plain(request);
  request.stop.stop_token_ids = {expected.tokens[10].id};
  const Heard stopped = plain(request);
  EngineWorld world(drafting());
  const Heard heard = hinted(world, request, Text(request, expected.ids()));
  expect_same(heard, stopped);
  const HintCounters& hints = world.engine->stats().hints;
  // One token of each step is no hint that came true, unless it is the last.
  EXPECT_GE(hints.accepted_tokens + world.engine->stats().steps, heard.tokens.size());
  EXPECT_LT(hints.accepted_tokens, heard.tokens.size());
  EXPECT_EQ(heard.timings.accepted_tokens, hints.accepted_tokens);
  EXPECT_GT(hints.draft_tokens, hints.accepted_tokens);
}

TEST(EngineHints, BlocksOfAcceptedHintsAreFoundByTheNextTurn) {
  GenerationRequest request = EngineWorld::request(7, 20, 45);
  const Heard expected = plain(request);
  EngineWorld world(drafting());
  hinted(world, request, Text(request, expected.ids()));
  GenerationRequest next = EngineWorld::request(8, 1, 4);
  next.prompt = Text(request, expected.ids()).tokens;
  next.prompt.push_back(1);
  // Keys of 64 of the 65 tokens were computed.
  EXPECT_EQ(world.alone(next)[0].timings.cached.all, 64u);
  EXPECT_EQ(world.heard.rbegin()->second[0].ids(), plain(next).ids());
}

TEST(EngineHints, RejectedHintsLeaveNothingInBlocksThatOthersFind) {
  GenerationRequest request = EngineWorld::request(9, 20, 45);
  const Heard expected = plain(request);
  std::vector<int32_t> wrong = expected.ids();
  for (size_t i = 0; i < wrong.size(); i += 3) wrong[i] ^= 1;
  EngineWorld world(drafting());
  hinted(world, request, Text(request, wrong));
  GenerationRequest next = EngineWorld::request(8, 1, 20);
  next.prompt = Text(request, expected.ids()).tokens;
  next.prompt.push_back(1);
  next.logprobs = 0;
  const Heard after = world.alone(next)[0];
  EXPECT_EQ(after.timings.cached.all, 64u);
  expect_same(after, plain(next));
}

TEST(EngineHints, EachChoiceHasItsOwn) {
  GenerationRequest request = sampled(11);
  request.choices = 3;
  EngineWorld reference;
  const EngineWorld::Choices expected = reference.alone(request);
  EngineWorld world(drafting());
  const RequestKey key = world.submit(request);
  while (!world.engine->idle()) {
    for (uint32_t c = 0; c < 3; ++c) {
      const Text text(request, expected.at(c).ids());
      const Text known(request, world.heard[key][c].ids());
      text.give(*world.engine, key, known.tokens, 20, c);
    }
    world.step();
  }
  for (uint32_t c = 0; c < 3; ++c) expect_same(world.heard[key][c], expected.at(c));
  EXPECT_EQ(world.engine->stats().steps, 6u);
}

TEST(EngineHints, UnknownRequestsAndTokensAreCountedAndIgnored) {
  EngineWorld world(drafting());
  const GenerationRequest request = sampled(1);
  const RequestKey key = world.submit(request);
  const Text text(request, {1, 2, 3});
  EXPECT_EQ(text.give(*world.engine, {99, 0}, request.prompt, 3), HintOutcome::absent);
  EXPECT_EQ(text.give(*world.engine, key, request.prompt, 3, 7), HintOutcome::absent);
  EXPECT_EQ(Text(request, {1 << 30}).give(*world.engine, key, request.prompt, 1),
            HintOutcome::malformed);
  EXPECT_EQ(text.give(*world.engine, key, request.prompt, 3), HintOutcome::used);
  const HintCounters& hints = world.engine->stats().hints;
  EXPECT_EQ(hints.hints[static_cast<size_t>(HintOutcome::absent)], 2u);
  EXPECT_EQ(hints.hints[static_cast<size_t>(HintOutcome::malformed)], 1u);
  EXPECT_EQ(hints.hints[static_cast<size_t>(HintOutcome::used)], 1u);
  world.run();
}

TEST(EngineRedirect, GoesOnAsARequestWithThatOutputWould) {
  Random random(5);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    GenerationRequest request = sampled(seed);
    const std::vector<int32_t> plain_ids = plain(request).ids();
    EngineWorld world;
    const RequestKey key = world.submit(request);
    while (world.heard[key][0].tokens.size() < 1 + random.below(30)) world.step();
    if (random.chance(0.3f)) world.engine->preempt_all();
    // Back by some tokens, or on by some, and then another way.
    const auto said = static_cast<uint32_t>(world.heard[key][0].tokens.size());
    std::vector<int32_t> output = plain_ids;
    output.resize(std::min(38u, random.below(said + 5)));
    if (random.chance(0.7f)) output.push_back(static_cast<int32_t>(random.below(200)));
    ASSERT_TRUE(world.engine->redirect(key, output));
    world.engine->check_conservation();
    std::vector<TokenOut> rest;
    while (!world.engine->idle()) {
      for (const ChoiceUpdate& update : world.engine->step()) {
        if (!update.tokens.empty()) {
          EXPECT_EQ(update.first_index, output.size() + rest.size()) << seed;
        }
        rest.insert(rest.end(), update.tokens.begin(), update.tokens.end());
      }
      world.engine->check_conservation();
    }
    request.committed = output;
    EngineWorld reference;
    EXPECT_EQ(rest, reference.alone(request)[0].tokens) << seed;
    EXPECT_FALSE(world.engine->redirect(key, output)) << "it is over";
  }
}

TEST(EngineRedirect, RefusesWhatTheModelCannotGoOnFrom) {
  EngineWorld world;
  const GenerationRequest request = EngineWorld::request(3, 10, 6);
  const RequestKey key = world.submit(request);
  world.step();
  EXPECT_FALSE(world.engine->redirect(key, std::vector<int32_t>{1 << 20}));
  EXPECT_FALSE(world.engine->redirect(key, std::vector<int32_t>{-1}));
  EXPECT_FALSE(world.engine->redirect(key, std::vector<int32_t>(6, 1)));
  world.run();
  EXPECT_EQ(world.heard[key][0].tokens, plain(request).tokens);
}

TEST(EngineFork, GoesOnAsARequestWithThatOutputWould) {
  Random random(6);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    GenerationRequest request = sampled(seed);
    const std::vector<int32_t> plain_ids = plain(request).ids();
    EngineWorld world;
    const RequestKey key = world.submit(request);
    while (world.heard[key][0].tokens.size() < 1 + random.below(30)) world.step();
    if (random.chance(0.2f)) world.engine->preempt_all();
    // From a token that it has said, or beyond, another way; and from that one again.
    std::map<RequestKey, std::vector<int32_t>> outputs = {{key, {}}};
    RequestKey source = key;
    for (uint32_t i = 0; i < 3; ++i) {
      std::vector<int32_t> output = plain_ids;
      output.resize(std::min(38u, random.below(35)));
      if (random.chance(0.7f)) output.push_back(static_cast<int32_t>(random.below(200)));
      const RequestKey fresh{1000 + i, 7};
      const uint64_t before = world.engine->stats().blocks_free;
      ASSERT_TRUE(world.engine->fork(source, fresh, output)) << seed;
      EXPECT_EQ(world.engine->stats().blocks_free, before) << "it shares what is there";
      world.engine->check_conservation();
      world.first_index[fresh] = static_cast<uint32_t>(output.size());
      outputs[fresh] = output;
      source = random.chance(0.5f) ? fresh : key;
      for (uint32_t steps = random.below(3); steps > 0; --steps) world.step();
    }
    world.run();
    for (const auto& [forked, output] : outputs) {
      GenerationRequest alone = request;
      alone.committed = output;
      EngineWorld reference;
      EXPECT_EQ(world.heard[forked][0].tokens, reference.alone(alone)[0].tokens) << seed;
    }
  }
}

TEST(EngineFork, RefusesWhatCannotGoOnAndWhatHasNoRoom) {
  EngineOptions options = EngineWorld::small();
  options.sequences = 2;
  EngineWorld world(options);
  const GenerationRequest request = EngineWorld::request(3, 10, 6);
  const RequestKey key = world.submit(request);
  world.step();
  EXPECT_FALSE(world.engine->fork({99, 0}, {50, 0}, std::vector<int32_t>{1}));
  EXPECT_FALSE(world.engine->fork(key, {50, 0}, std::vector<int32_t>{1 << 20}));
  EXPECT_FALSE(world.engine->fork(key, {50, 0}, std::vector<int32_t>(6, 1)));
  EXPECT_TRUE(world.engine->fork(key, {50, 0}, std::vector<int32_t>{1}));
  EXPECT_FALSE(world.engine->fork(key, {51, 0}, std::vector<int32_t>{1})) << "two run already";
  world.first_index[{50, 0}] = 1;
  world.run();
  EXPECT_EQ(world.heard[key][0].tokens, plain(request).tokens);
}

/// A step of any rows takes as long as one of one row, or as many times as long.
StepCosts step_costs(bool rows_are_free) {
  StepCosts costs{.rows = {1, 16}, .contexts = {0}};
  costs.times = {std::chrono::milliseconds(1), std::chrono::milliseconds(rows_are_free ? 1 : 16)};
  return costs;
}

EngineOptions ngram() {
  EngineOptions options = EngineWorld::small();
  options.speculation.ngram = true;
  return options;
}

/// Says one token again and again, so that there is always something to draft.
GenerationRequest repeating() {
  GenerationRequest request = EngineWorld::request(13, 12, 60);
  request.sampling.logit_bias = {{5, 100.0f}};
  return request;
}

TEST(EngineHints, OwnTextIsDraftedFromWhereRowsAreCheap) {
  const GenerationRequest request = repeating();
  const Heard expected = plain(request);
  EngineWorld world(ngram());
  world.engine->set_step_costs(step_costs(true));
  expect_same(world.alone(request)[0], expected);
  EXPECT_GT(world.engine->stats().hints.drafts, 5u);
}

TEST(EngineHints, NothingButAProbeIsDraftedWhereRowsAreDear) {
  const GenerationRequest request = repeating();
  EngineWorld world(ngram());
  world.engine->set_step_costs(step_costs(false));
  expect_same(world.alone(request)[0], plain(request));
  EXPECT_LE(world.engine->stats().hints.draft_tokens, 1u);
}

struct Beside {
  std::vector<bool> verified;   ///< Hints, in each of three steps.
  std::vector<bool> could_pay;  ///< By what may be hoped, too.
};

/// Of a stream, each row as dear as a step, from when a prompt comes. The pool has so many blocks,
/// a step so many rows.
Beside hints_beside(uint32_t prompt_tokens, uint32_t blocks, uint32_t batch_tokens) {
  EngineOptions options = EngineWorld::with_blocks(blocks);
  options.speculation.ngram = true;
  options.batch_tokens = batch_tokens;
  EngineWorld world(options);
  StepCosts costs = step_costs(false);
  costs.prefill_row_ns = 1'000'000;
  world.engine->set_step_costs(costs);
  GenerationRequest request = repeating();
  request.prompt.assign(40, 5);
  request.stop.max_tokens = 20;
  world.submit(request);
  while (world.engine->stats().generated_tokens < 4) world.step();
  world.submit(EngineWorld::request(3, prompt_tokens, 1));
  Beside seen;
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = world.engine->stats().hints.drafts;
    world.step();
    seen.verified.push_back(world.engine->stats().hints.drafts > before);
    seen.could_pay.push_back(world.engine->stats().hints_could_pay);
  }
  world.run();
  return seen;
}

TEST(EngineHints, BesideTheEndOfAPromptHintsAreAPartOfALongStep) {
  EXPECT_EQ(hints_beside(100, 20, 64).verified, std::vector<bool>({false, true, false}));
}

TEST(EngineHints, APromptThatTakesAllRowsLeavesNoneForHints) {
  const Beside seen = hints_beside(100, 20, 8);
  EXPECT_EQ(seen.verified, std::vector<bool>({false, false, false}));
  EXPECT_EQ(seen.could_pay, std::vector<bool>({true, false, false})) << "at first it waits";
}

TEST(EngineHints, APromptThatWaitsForBlocksMakesNoHintCheap) {
  EXPECT_EQ(hints_beside(50, 6, 64).verified, std::vector<bool>({false, false, false}));
}

TEST(EngineHints, DraftsComeBackAfterStepsInWhichNothingCouldPay) {
  const GenerationRequest request = repeating();
  const Heard expected = plain(request);
  for (const int dear_first : {1, 10}) {
    EngineWorld world(ngram());
    const RequestKey key = world.submit(request);
    for (int i = 0; i < 30; ++i) {
      const bool is_dear = i < dear_first || (i >= 12 && i < 14);
      const uint64_t before = world.engine->stats().hints.drafts;
      world.engine->set_step_costs(step_costs(!is_dear));
      world.step();
      if (is_dear) {
        EXPECT_EQ(world.engine->stats().hints.drafts, before);
      }
    }
    world.run();
    expect_same(world.heard[key][0], expected);
    EXPECT_GT(world.engine->stats().hints.drafts, 3u);
  }
}

TEST(EngineHints, HintsThatCameWhileNothingCouldPayAreOfUseLater) {
  const GenerationRequest request = sampled(1);
  const Heard expected = plain(request);
  EngineWorld world(EngineWorld::small());
  world.engine->set_step_costs(step_costs(false));
  const RequestKey key = world.submit(request);
  Text(request, expected.ids()).give(*world.engine, key, request.prompt, 20);
  world.step();
  for (int i = 0; i < 3; ++i) world.step();
  EXPECT_EQ(world.engine->stats().hints.drafts, 0u);
  world.engine->set_step_costs(step_costs(true));
  world.run();
  expect_same(world.heard[key][0], expected);
  EXPECT_GT(world.engine->stats().hints.accepted_tokens, 3u);
}

TEST(EngineHints, WhereHintsBeginToPayForManyTheirTextsAreIndexedOverSomeSteps) {
  constexpr uint32_t k_many = 40;  // for fewer it is hoped, and tried, that they do
  EngineOptions options = ngram();
  options.context_tokens = 512;
  options.kv_memory_bytes = uint64_t{64} << 20;
  options.sequences = k_many;
  EngineWorld world(options);
  world.engine->set_step_costs(step_costs(false));
  GenerationRequest request = repeating();
  request.prompt.assign(450, 5);
  for (uint32_t i = 0; i < k_many; ++i) world.submit(request);
  while (world.engine->stats().generated_tokens < 2 * k_many) world.step();
  world.engine->set_step_costs(step_costs(true));
  world.step();
  EXPECT_EQ(world.engine->stats().hints.drafts, 5u);
  world.step();
  EXPECT_EQ(world.engine->stats().hints.drafts, 5u + 10u);
  world.run();
}

TEST(EngineHints, APreemptedSequenceDraftsAgain) {
  const GenerationRequest request = repeating();
  EngineWorld world(ngram());
  world.engine->set_step_costs(step_costs(true));
  const RequestKey key = world.submit(request);
  for (int i = 0; i < 5; ++i) world.step();
  const uint64_t before = world.engine->stats().hints.drafts;
  EXPECT_GT(before, 0u);
  world.engine->preempt_all();
  world.run();
  expect_same(world.heard[key][0], plain(request));
  EXPECT_GT(world.engine->stats().hints.drafts, before);
}

TEST(EngineHints, APreemptedSequenceKeepsItsHints) {
  const GenerationRequest request = sampled(1);
  const Heard expected = plain(request);
  EngineWorld world(drafting(2));
  const RequestKey key = world.submit(request);
  Text(request, expected.ids()).give(*world.engine, key, request.prompt, 20);
  world.step();
  world.engine->preempt_all();
  world.run();
  expect_same(world.heard[key][0], expected);
  EXPECT_EQ(world.engine->stats().hints.accepted_tokens, 12u) << "two of each three, of 18";
}

TEST(EngineHints, AnswersGivenWhileNothingCouldPayAreDraftedFromLater) {
  const GenerationRequest request = sampled(2);
  EngineWorld world(ngram());
  world.engine->set_step_costs(step_costs(false));
  world.alone(request);
  world.engine->set_step_costs(step_costs(true));
  world.alone(request);
  const HintCounters& hints = world.engine->stats().hints;
  EXPECT_GT(hints.by_source[static_cast<size_t>(HintSource::past_outputs)].accepted_tokens, 10u);
}

TEST(EngineHints, EachStepTellsWhetherHintsCouldPay) {
  for (const bool speculates : {true, false}) {
    EngineWorld world(EngineWorld::small());
    world.engine->set_step_costs(step_costs(true));
    GenerationRequest request = EngineWorld::request(13, 12, 4);
    request.speculation.enabled = speculates;
    world.submit(request);
    world.step();
    EXPECT_FALSE(world.engine->stats().hints_could_pay) << "of a prompt";
    world.step();
    EXPECT_EQ(world.engine->stats().hints_could_pay, speculates);
    world.run();
    EXPECT_FALSE(world.engine->stats().hints_could_pay) << "before the last token";
  }
}

TEST(EngineHints, WithoutCostsNothingIsDrafted) {
  EngineWorld world(ngram());
  world.alone(repeating());
  EXPECT_EQ(world.engine->stats().hints.drafts, 0u);
}

}  // namespace
}  // namespace outrider::model
