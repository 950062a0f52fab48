#include <gtest/gtest.h>

#include <array>

#include "base/philox.hpp"
#include "model/draft_chain.test.hpp"

namespace outrider::model {
namespace {

using std::chrono::milliseconds;

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
    const std::vector<HintBranch> chain = hint_chain(load.depth, 200);
    const Drafts request(0, k_empty_text, control_.acceptance_of(0));
    std::vector<Drafts> drafts(load.sequences, request);
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
        uint32_t true_hints = 0;
        while (true_hints < load.depth && random_.chance(load.come_true)) ++true_hints;
        const size_t drawn = commit_chain(drafts[s], true_hints, depths[s]);
        if (depths[s] > 0) control_.learn(drawn);
        tokens += drawn;
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

TEST(DraftControlPace, WhatWasMeasuredInASlowMomentIsPutRight) {
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

TEST(DraftControlPace, AStartWhileOthersHadTheMachineIsPutRight) {
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

TEST(DraftControlPace, WhatWasPutRightStaysSo) {
  for (const uint64_t seed : {10, 24}) {  // Long misled.
    const Load load = {32, 32, 1, 8, 0.2f};
    Disturbed machine(cpu_ms, seed);
    Decoding decoding(machine, seed);
    decoding.gain(load, 200);
    EXPECT_GT(decoding.gain(load, 1300), 0.98) << "seed " << seed;
  }
}

TEST(DraftControlPace, WhoSharesAMachineIsNotMisled) {
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

TEST(DraftControlPace, SlowStepsWithoutHintsMakeNoHintCheap) {
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
TEST(DraftControlPace, SlowStepsOfFewerSequencesMakeNoHintCheap) {
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
TEST(DraftControlPace, DisturbedStepsPayForFewTries) {
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
TEST(DraftControlPace, WhoHadAMachineInTurnsIsNotMisledForLong) {
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
TEST(DraftControlPace, WhereLoadAndPaceChangeAtOnceItIsPutRight) {
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

/// What runs is dear, and all that is behind it costs no more: nothing that runs tells.
TEST(DraftControlPace, BehindAStairHintsAreFound) {
  for (const uint32_t sequences : {65u, 66u, 70u}) {
    Disturbed machine(gpu_ms, 1);
    machine.disturb(false);
    Decoding decoding(machine, 1);
    const Load load = {sequences, sequences, 1, 5, 0.3f};
    decoding.gain(load, 1000);
    EXPECT_GT(decoding.gain(load, 500), 1.2) << sequences << " sequences";
  }
}

/// A hint there begins another tile: a quarter of a step.
TEST(DraftControlPace, BesidePromptsWhatIsRarelyTrueCostsNothing) {
  for (const uint32_t sequences : {64u, 128u}) {
    Disturbed machine(gpu_ms, 1);
    machine.disturb(false);
    Decoding decoding(machine, 1);
    const Load load = {sequences, sequences, 1, 8, 0.1f, 1};
    decoding.gain(load, 100);
    EXPECT_GT(decoding.gain(load, 400), 0.998) << sequences << " sequences";
  }
}

TEST(DraftControlPace, BesidePromptsNobodyIsMisledThoughNothingIsLearnt) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Load load = {64, 64, 1, 8, 0.2f, 1};
    Disturbed machine(cpu_ms, seed);
    Decoding decoding(machine, seed);
    // Until it is seen how rarely they come true, some hints are believed: 40 steps alone may be
    // 0.969.
    EXPECT_GT(decoding.gain(load, 60), 0.97) << "seed " << seed;
  }
}

TEST(DraftControlPace, BesidePromptsHintsGain) {
  Disturbed machine(cpu_ms, 1);
  Decoding decoding(machine, 1);
  EXPECT_GT(decoding.gain({4, 4, 1, 8, 0.9f, 1}, 50), 3);
}

/// The first row of another tile costs half a step.
TEST(DraftControlPace, WhatIsTriedCostsAHundredthOfTheTimeOrLittleMore) {
  for (const uint32_t sequences : {64u, 124u}) {
    Disturbed machine(gpu_ms, 1);
    Decoding decoding(machine, 1);
    const Load load = {sequences, sequences, 1, 8, 0.1f};
    decoding.gain(load, 100);
    EXPECT_GT(decoding.gain(load, 400), 0.99) << sequences;
  }
}

}  // namespace
}  // namespace outrider::model
