#include "model/draft_control.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "base/limits.hpp"
#include "base/philox.hpp"

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
      : costs_(costs(rows_are_free)),
        control_(options),
        drafts_(sequences, Drafts(0, k_empty_text)) {
    control_.set_costs(costs_);
  }

  void begin_requests() { drafts_.assign(drafts_.size(), Drafts(0, k_empty_text)); }
  /// One step, in which the first `true_hints` of each path come true.
  std::vector<uint32_t> step(uint8_t confidence, size_t true_hints) {
    const std::vector<HintBranch> chain = {{-1, 7, confidence}, {0, 8, confidence}};
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
      if (depths[i] > 0) {
        control_.learn(drafts_[i], 1 + std::min<size_t>(true_hints, depths[i]));
      }
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
      const std::vector<HintBranch> chain = {{-1, 7, confidence, odds}, {0, 7, confidence, odds}};
      drafts.trie = HintTrie(0, k_empty_text);
      drafts.trie.insert({0, k_empty_text, chain, HintSource::draft_model});
      own.find_path(drafts, 8);
      std::vector<uint32_t> depth;
      own.choose(std::vector<DecodingSequence>{{0, &drafts}}, {}, 15, depth);
      depths.push_back(depth[0]);
      drafts.path.resize(depth[0]);
      if (depth[0] > 0) own.learn(drafts, step % 3 == 0 ? 1 : 1 + depth[0]);
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

TEST(DraftControl, CostsThatCannotBeTrueAreTriedNowAndThenUntilTheyAre) {
  DraftControl control({.depth_max = 8});
  control.set_costs({.rows = {1, 2, 4},
                     .contexts = {0},
                     .times = {milliseconds(10), milliseconds(22), milliseconds(44)}});
  Drafts drafts(0, k_empty_text);
  const std::vector<HintBranch> chain = {{-1, 7, 250}, {0, 8, 250}, {1, 9, 250}};
  uint32_t tried = 0;
  const auto step = [&] {
    drafts.trie = HintTrie(0, k_empty_text);
    drafts.trie.insert({0, k_empty_text, chain, HintSource::own_text});
    control.find_path(drafts, 8);
    std::vector<uint32_t> depth;
    control.choose(std::vector<DecodingSequence>{{0, &drafts}}, {}, 16, depth);
    drafts.path.resize(depth[0]);
    if (depth[0] > 0) control.learn(drafts, 1 + depth[0]);
    tried += depth[0] > 0 ? 1 : 0;
    control.observe(std::vector<StepShare>{{1 + depth[0], 0}}, milliseconds(10 + depth[0]));
  };
  for (int i = 0; i < 880; ++i) step();
  EXPECT_EQ(tried, 0u) << "five tries, each hoped to take 9 ms more, are half a percent of 9 s";
  for (int i = 0; i < 200; ++i) step();
  EXPECT_GT(tried, 5u);
  tried = 0;
  for (int i = 0; i < 100; ++i) step();
  EXPECT_GE(tried, 94u) << "all but each seventeenth step";
}

/// A CPU that computes rows in tiles of eight, and a GPU that reads 64 for nothing.
double cpu_ms(uint32_t rows) {
  const uint32_t whole = (rows - 1) / 8;
  const double share = std::array{0.36, 0.46, 0.56, 0.65, 0.74, 0.83, 0.92, 1.0}[(rows - 1) % 8];
  return whole == 0 ? 38 + 45 * share : 83 + 82 * (whole - 1 + share);
}
double gpu_ms(uint32_t rows) {
  return 10 + 5 * ((rows - 1) / 64);
}
double small_ms(uint32_t rows) {
  return 3 + 0.25 * (rows - 1);
}

/// A machine that others use in half of its moments, or in turns with us.
class Disturbed final : public StepProbe, public Clock {
 public:
  Disturbed(double (*of_rows)(uint32_t), uint64_t seed) : ms_(of_rows), random_(seed) {}

  /// What a step takes in the moment of the last one.
  double ms(uint32_t rows) const { return ms_(rows) * slower_; }
  Duration take(uint32_t rows) {
    if (is_disturbed_ && now_ >= moment_over_) {
      moment_over_ = now_ + milliseconds(100 + static_cast<int>(random_.uniform() * 1000));
      slower_ = random_.uniform() < 0.5 ? 1.3 + 1.2 * random_.uniform() : 1;
    }
    const Duration time(static_cast<Duration::rep>((ms(rows) + waits_ms(ms(rows))) * 1e6));
    now_ += time;
    return time;
  }
  /// From now on it computes for about that long, then others do.
  void take_turns(double own_ms, double others_ms) {
    own_ms_ = own_ms;
    others_ms_ = others_ms;
  }
  Duration time_step(uint32_t rows, uint32_t, uint32_t) override { return take(rows); }
  void disturb(bool is_disturbed) {
    is_disturbed_ = is_disturbed;
    slower_ = 1;
  }
  void slow_down(double slower) { slower_ = slower; }
  TimePoint now() const override { return now_; }
  uint32_t probe_tokens_max() const override { return 5000; }
  uint32_t batch_tokens() const override { return 512; }
  uint32_t local_window() const override { return 0; }

 private:
  /// While others have their turns, of what takes so long.
  double waits_ms(double computes_ms) {
    double waits = 0;
    if (others_ms_ == 0) return waits;
    for (turn_ms_ -= computes_ms; turn_ms_ < 0;) {
      waits += others_ms_ * 2 * random_.uniform();
      turn_ms_ += own_ms_ * 2 * random_.uniform();
    }
    return waits;
  }

  double (*ms_)(uint32_t);
  Random random_;
  double own_ms_ = 0;
  double others_ms_ = 0;
  double turn_ms_ = 0;  ///< What is left of ours.
  bool is_disturbed_ = true;
  double slower_ = 1;
  TimePoint now_{};
  TimePoint moment_over_{};
};

struct Load {
  uint32_t sequences = 0;
  uint32_t hinted = 0;     ///< Of these.
  float has_hints = 0.5f;  ///< Share of their steps.
  uint32_t depth = 3;
  float come_true = 0.7f;
  float prompts = 0;  ///< Share of the steps with 128 rows of one beside.
};

/// The controller on a machine, from its start on.
class Decoding {
 public:
  Decoding(Disturbed& machine, uint64_t seed) : machine_(machine), random_(seed) {
    control_.set_costs(measure_step_costs(machine, machine));
    machine.disturb(false);
  }

  /// Tokens of `steps` steps to those that the same steps without hints give in the same time.
  double gain(const Load& load, int steps) {
    std::vector<HintBranch> chain;
    for (int32_t i = 0; i < static_cast<int32_t>(load.depth); ++i) {
      chain.push_back({i - 1, 7 + i, 200});
    }
    std::vector<Drafts> drafts(load.sequences, Drafts(0, k_empty_text));
    const TimePoint begin = machine_.now();
    uint64_t tokens = 0;
    double plain_ms = 0;
    for (int i = 0; i < steps; ++i) {
      std::vector<DecodingSequence> decoding;
      for (uint32_t s = 0; s < load.sequences; ++s) {
        drafts[s].trie = HintTrie(0, k_empty_text);
        if (s < load.hinted && random_.chance(load.has_hints)) {
          drafts[s].trie.insert({0, k_empty_text, chain, HintSource::own_text});
        }
        control_.find_path(drafts[s], 8);
        decoding.push_back({0, &drafts[s], 8});
      }
      PromptRows prompts;
      if (random_.chance(load.prompts)) prompts = {1, 128};
      const uint32_t rows_max = 512 - load.sequences - prompts.rows;
      std::vector<uint32_t> depths(load.sequences, 0);
      if (control_.could_pay(decoding, prompts, rows_max)) {
        control_.choose(decoding, prompts, rows_max, depths);
      }
      std::vector<StepShare> shares;
      uint32_t rows = load.sequences + prompts.rows;
      const uint32_t plain_rows = rows;
      for (uint32_t s = 0; s < load.sequences; ++s) {
        drafts[s].path.resize(depths[s]);
        uint32_t came_true = 0;
        while (came_true < depths[s] && random_.chance(load.come_true)) ++came_true;
        if (depths[s] > 0) control_.learn(drafts[s], 1 + came_true);
        tokens += 1 + came_true;
        rows += depths[s];
        shares.push_back({1 + depths[s], 0});
      }
      const Duration time = machine_.take(rows);
      plain_ms += machine_.ms(plain_rows);
      if (prompts.rows == 0) {
        control_.observe(shares, time);
      } else {
        control_.pass(time);
      }
    }
    const double each = static_cast<double>(tokens) / (double{1} * load.sequences * steps);
    return each * plain_ms / to_ms(machine_.now() - begin);
  }

 private:
  Disturbed& machine_;
  Random random_;
  DraftControl control_{{.depth_max = 8}};
};

TEST(DraftControl, WhatWasMeasuredInASlowMomentIsPutRight) {
  // 11: behind a tile's first rows; from 64 on all that is hinted is of more rows than are
  // measured.
  const Load loads[] = {{11, 1, 1, 3, 0.4f},  {16, 16}, {24, 24},
                        {32, 32, 1, 8, 0.2f}, {64, 64}, {124, 124}};
  int misled = 0;
  for (const Load& load : loads) {
    for (uint64_t seed = 5; seed <= 10; ++seed) {
      Disturbed machine(cpu_ms, seed);
      Decoding decoding(machine, seed);
      misled += decoding.gain(load, 20) < 0.95 ? 1 : 0;
      decoding.gain(load, 80);
      EXPECT_GT(decoding.gain(load, 100), 0.97) << load.sequences << " sequences, seed " << seed;
    }
  }
  EXPECT_GE(misled, 2) << "this machine misleads nobody";
}

TEST(DraftControl, AStartWhileOthersHadTheMachineIsPutRight) {
  for (const uint32_t sequences : {8, 16, 32}) {
    Disturbed machine(gpu_ms, 1);
    machine.disturb(false);
    machine.slow_down(16);
    Decoding decoding(machine, 1);
    const Load load = {sequences, sequences, 1, 8, 0.1f};
    decoding.gain(load, 100);
    EXPECT_GT(decoding.gain(load, 100), 0.97) << sequences << " sequences";
  }
}

TEST(DraftControl, WhatWasPutRightStaysSo) {
  for (const uint64_t seed : {10, 24}) {  // Long misled.
    const Load load = {32, 32, 1, 8, 0.2f};
    Disturbed machine(cpu_ms, seed);
    Decoding decoding(machine, seed);
    decoding.gain(load, 200);
    EXPECT_GT(decoding.gain(load, 1300), 0.98) << "seed " << seed;
  }
}

TEST(DraftControl, WhoSharesAMachineIsNotMisled) {
  for (const Load& load :
       {Load{16, 16, 1, 8, 0.4f}, Load{27, 27, 1, 8, 0.4f}, Load{32, 32, 1, 8, 0.6f}}) {
    for (const uint64_t seed : {4, 14}) {
      Disturbed machine(cpu_ms, seed);
      Decoding decoding(machine, seed);
      machine.disturb(true);
      for (const int steps : {500, 500, 1000}) {
        EXPECT_GT(decoding.gain(load, steps), 0.97)
            << load.sequences << " sequences, seed " << seed;
      }
    }
  }
}

TEST(DraftControl, SlowStepsWithoutHintsMakeNoHintCheap) {
  for (const double slower : {1.6, 3.0}) {
    Disturbed machine(cpu_ms, 1);
    Decoding decoding(machine, 1);
    const Load load = {32, 32, 1, 8, 0.4f};
    decoding.gain(load, 300);
    machine.slow_down(slower);
    decoding.gain({32, 0}, 40);
    machine.slow_down(1);
    EXPECT_GT(decoding.gain(load, 50), 0.97) << slower;
  }
}

/// What was learnt of fewer rows in a slow moment, and never again.
TEST(DraftControl, SlowStepsOfFewerSequencesMakeNoHintCheap) {
  for (const uint32_t fewer : {7, 4}) {
    for (const double slower : {3.0, 20.0}) {
      Disturbed machine(cpu_ms, 1);
      machine.disturb(false);
      Decoding decoding(machine, 1);
      const Load load = {8, 8, 1, 6, 0.7f};
      decoding.gain(load, 300);
      machine.slow_down(slower);
      decoding.gain({fewer, 0}, 20);
      machine.slow_down(1);
      decoding.gain(load, 60);
      for (int i = 0; i < 3; ++i) EXPECT_GT(decoding.gain(load, 300), 0.99) << fewer << slower;
    }
  }
}

/// One try beside a step that took many times as long would pay for hundreds of others.
TEST(DraftControl, DisturbedStepsPayForFewTries) {
  static double row_ms;
  double sum = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    row_ms = 0.05;  // At the start: what is cheap by that is tried for ever.
    Disturbed machine([](uint32_t rows) { return 10 + row_ms * (rows - 1); }, seed);
    machine.disturb(false);
    Decoding decoding(machine, seed);
    row_ms = 6;
    Random random(seed);
    for (int i = 0; i < 5000; ++i) {
      machine.slow_down(random.chance(0.05f) ? 50 : 1);
      const double gain = decoding.gain({1, 1, 1, 8, 0.3f}, 1);
      sum += i < 1000 ? 0 : gain / 4000;
    }
  }
  EXPECT_GT(sum / 4, 0.992);
}

/// A step takes what it computes, or many times that: what was learnt meanwhile may be anything.
TEST(DraftControl, WhoHadAMachineInTurnsIsNotMisledForLong) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Disturbed machine(small_ms, seed);
    machine.disturb(false);
    Decoding decoding(machine, seed);
    const Load load = {1, 1, 0.8f, 6, 0.97f};
    machine.take_turns(4, 12);
    decoding.gain(load, 4000);
    machine.take_turns(1, 0);
    decoding.gain(load, 1500);
    EXPECT_GT(decoding.gain(load, 200), 2.5) << "seed " << seed;
  }
}

/// Others come to a machine, or leave it, while the load changes: no step before tells the pace.
TEST(DraftControl, WhereLoadAndPaceChangeAtOnceItIsPutRight) {
  Disturbed machine(cpu_ms, 1);
  Decoding decoding(machine, 1);
  Random random(77);
  for (int change = 0; change < 12; ++change) {
    machine.slow_down(0.5 + 3 * random.uniform());
    const uint32_t sequences = 1 + static_cast<uint32_t>(63 * random.uniform());
    const Load load = {sequences, random.chance(0.3f) ? 0 : sequences, 1, 8,
                       0.3f + 0.5f * static_cast<float>(random.uniform())};
    decoding.gain(load, 360);
    EXPECT_GT(decoding.gain(load, 100), 0.97) << "change " << change << ", " << sequences;
  }
}

TEST(DraftControl, BesidePromptsNobodyIsMisledThoughNothingIsLearnt) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Load load = {64, 64, 1, 8, 0.2f, 1};
    Disturbed machine(cpu_ms, seed);
    Decoding decoding(machine, seed);
    // Until it is seen how rarely they come true, some hints are believed: 40 steps alone may be
    // 0.969.
    EXPECT_GT(decoding.gain(load, 60), 0.97) << "seed " << seed;
  }
}

TEST(DraftControl, BesidePromptsHintsGain) {
  Disturbed machine(cpu_ms, 1);
  Decoding decoding(machine, 1);
  EXPECT_GT(decoding.gain({4, 4, 1, 8, 0.9f, 1}, 50), 3);
}

/// The first row of another tile costs half a step; of 129 rows no table has a point of its own, so
/// that a probe there is charged for half of what it costs.
TEST(DraftControl, WhatIsTriedCostsAHundredthOfTheTimeOrLittleMore) {
  for (const uint32_t sequences : {64u, 124u}) {
    Disturbed machine(gpu_ms, 1);
    Decoding decoding(machine, 1);
    const Load load = {sequences, sequences, 1, 8, 0.1f};
    decoding.gain(load, 100);
    EXPECT_GT(decoding.gain(load, 400), sequences == 64 ? 0.99 : 0.985) << sequences;
  }
}

TEST(DraftControl, NoStepIsPlainToLearnNothing) {
  DraftControl control({.depth_max = 8});
  control.set_costs({.rows = {1, 2, 4}, .contexts = {0}, .times = {2000us, 2020us, 2040us}});
  const std::vector<HintBranch> chain = {{-1, 7, 250}};
  Drafts drafts(0, k_empty_text);
  drafts.trie.insert({0, k_empty_text, chain, HintSource::own_text});
  const auto count_plain = [&](bool are_observed, const PromptRows& beside) {
    int plain = 0;
    for (int step = 0; step < 200; ++step) {
      control.find_path(drafts, 1);
      const std::vector<DecodingSequence> decoding = {{0, &drafts, 1}};
      std::vector<uint32_t> depths;
      control.choose(decoding, beside, 100, depths);
      plain += depths[0] == 0 ? 1 : 0;
      const StepShare share{1 + depths[0], 0};
      if (are_observed) control.observe(std::span(&share, 1), milliseconds(2));
    }
    return plain;
  };
  EXPECT_EQ(count_plain(false, {}), 0);
  const StepShare hinted{2, 0};
  for (int step = 0; step < 9; ++step) control.observe(std::span(&hinted, 1), milliseconds(2));
  EXPECT_EQ(count_plain(false, {1, 64}), 0) << "beside prompts no step tells what it takes";
  EXPECT_EQ(count_plain(true, {}), 200 / 17 + 5);
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
  modest.verified(4000, 10, 2);
  EXPECT_EQ(modest.step(10, 2), std::vector<uint32_t>{2}) << "probes found out";
}

TEST(DraftControl, ProbesOnlyWhereItCouldPay) {
  World dear({}, false, 4);
  EXPECT_EQ(dear.verified(2000, 10, 2), 0u);
  World cheap({}, true, 4);
  EXPECT_GT(cheap.verified(200, 5, 0), 0u);
}

TEST(DraftControl, FixedDepthsStopBeforeWhatComesTrueTooRarely) {
  World world({.fixed_depth = true, .accept_min = 0.5f}, false);
  EXPECT_EQ(world.step(250, 0), std::vector<uint32_t>{2});
  world.verified(50, 250, 0);
  EXPECT_EQ(world.step(250, 0), std::vector<uint32_t>{0});
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
    Drafts drafts(0, k_empty_text);
    drafts.of_tenant = control.acceptance_of(tenant);
    for (int i = 0; i <= steps; ++i) {
      drafts.trie = HintTrie(0, k_empty_text);
      drafts.trie.insert({0, k_empty_text, chain, HintSource::own_text});
      control.find_path(drafts, 8);
      if (i < steps) control.learn(drafts, true_hints ? 2 : 1);
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
