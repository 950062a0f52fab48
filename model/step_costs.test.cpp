#include "model/step_costs.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/engine_world.test.hpp"

namespace outrider::model {
namespace {

/// A step takes 100 + 10 a row; each row pays 1 for each 10 tokens before it.
StepCosts line() {
  StepCosts costs;
  costs.rows = {1, 4, 16};
  costs.contexts = {0, 1000};
  for (const int64_t context : {0, 1000}) {
    for (const int64_t rows : {1, 4, 16}) {
      costs.times.emplace_back(100 + 10 * rows + rows * context / 10);
    }
  }
  return costs;
}

/// Costs of the tiny model on this machine's own clock.
struct Measured {
  explicit Measured(const EngineOptions& options)
      : engine(Engine::create(EngineWorld::model(), options, clock).value()),
        costs(measure_step_costs(*engine, clock)) {}

  SteadyClock clock;
  std::unique_ptr<Engine> engine;
  StepCosts costs;
};

/// A device that computes rows, in whole tiles, for nothing until they take as long as the weights.
class Roofline final : public StepProbe, public Clock {
 public:
  struct Model {
    int64_t weights_us = 0;
    int64_t row_us = 0;
    int64_t context_row_ns = 0;  ///< of one row, for each token of context
    uint32_t tile_rows = 1;
    int disturbed_step = -1;  ///< The one of all that takes ten times as long.
  };
  explicit Roofline(const Model& model) : model_(model) {}

  Duration take(uint32_t rows, uint32_t context) const {
    const uint32_t computed = (rows + model_.tile_rows - 1) / model_.tile_rows * model_.tile_rows;
    return std::chrono::microseconds(std::max(model_.weights_us, computed * model_.row_us)) +
           Duration(model_.context_row_ns * rows * context);
  }

  TimePoint now() const override { return now_; }
  Duration time_step(uint32_t rows, uint32_t context, uint32_t sampled) override {
    EXPECT_LE(rows, batch_tokens());
    EXPECT_LE(rows + context, probe_tokens_max());
    Duration time = take(rows, context);
    if (steps_++ == model_.disturbed_step) time *= 10;
    if (sampled == rows) rows_most_ = std::max(rows_most_, rows);
    now_ += time;
    return time;
  }
  uint32_t probe_tokens_max() const override { return 5000; }
  uint32_t batch_tokens() const override { return 512; }
  uint32_t local_window() const override { return 0; }
  int steps() const { return steps_; }
  uint32_t rows_most() const { return rows_most_; }  ///< Of a step with each row sampled.

 private:
  Model model_;
  int steps_ = 0;
  uint32_t rows_most_ = 0;
  TimePoint now_{};
};

int64_t predict(const StepCosts& costs, std::vector<StepShare> shares) {
  return costs.step(shares).count();
}

TEST(StepCosts, AFewAreMeasuredInNextToNoTime) {
  Roofline device({.weights_us = 1000, .row_us = 200});
  const StepCosts costs = measure_few_step_costs(device, device);
  EXPECT_EQ(costs.rows, (std::vector<uint32_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(costs.contexts, std::vector<uint32_t>{0});
  EXPECT_LE(device.steps(), 13);
  for (const uint32_t rows : {1u, 4u, 8u, 16u}) {
    EXPECT_EQ(costs.step(std::vector<StepShare>{{rows, 300}}), device.take(rows, 0)) << rows;
  }
}

TEST(StepCosts, AreWhatWasMeasuredAtThePointsOfTheTable) {
  const StepCosts costs = line();
  EXPECT_EQ(predict(costs, {{1, 0}}), 110);
  EXPECT_EQ(predict(costs, {{4, 1000}}), 140 + 400);
}

TEST(StepCosts, AreLinearBetweenAndBeyond) {
  const StepCosts costs = line();
  EXPECT_EQ(predict(costs, {{10, 0}}), 200);
  EXPECT_EQ(predict(costs, {{32, 0}}), 420);
  EXPECT_EQ(predict(costs, {{4, 500}}), 140 + 200);
  EXPECT_EQ(predict(costs, {{2, 3000}}), 120 + 600);
}

TEST(StepCosts, CountTheWeightsOnceAndEachSequencesContext) {
  const StepCosts costs = line();
  EXPECT_EQ(predict(costs, {{1, 1000}, {1, 2000}, {4, 500}}), 160 + 100 + 200 + 200);
  EXPECT_EQ(predict(costs, {{1, 1000}, {0, 2000}}), 110 + 100);
  EXPECT_EQ(predict(costs, {}), 0);
}

TEST(StepCosts, OfATableWithoutContextsGrowWithRowsOnly) {
  StepCosts costs = line();
  costs.contexts = {0};
  costs.times.resize(3);
  EXPECT_EQ(predict(costs, {{4, 1000}}), 140);
}

/// 1 us a row, 1 ns for each earlier token that it attends to.
int64_t predict_prefill(uint32_t window, uint32_t rows, uint32_t context) {
  StepCosts costs;
  costs.prefill_row_ns = 1000;
  costs.attention_pair_ps = 1000;
  costs.local_window = window;
  return costs.prefill(rows, context).count();
}

TEST(StepCosts, OfAPromptCountTheTokensThatEachRowAttendsTo) {
  EXPECT_EQ(predict_prefill(0, 100, 0), 100 * 1000 + 5000);
  EXPECT_EQ(predict_prefill(0, 100, 900), 100 * 1000 + 95'000);
  EXPECT_EQ(predict_prefill(1000, 100, 900), 100 * 1000 + 95'000) << "the window is just full";
  EXPECT_EQ(predict_prefill(40, 100, 900), 100 * 1000 + 4000);
  EXPECT_EQ(predict_prefill(40, 100, 0), 100 * 1000 + 800 + 60 * 40);
  EXPECT_EQ(predict_prefill(40, 100, 30), 100 * 1000 + 350 + 90 * 40);
}

TEST(StepCosts, KnowTheWindowOfTheirEngine) {
  EngineOptions options = EngineWorld::small();
  EXPECT_EQ(Measured(options).costs.local_window, 0u);
  options.local_window = 24;
  EXPECT_EQ(Measured(options).costs.local_window, 24u);
  options.local_window = options.context_tokens;
  EXPECT_EQ(Measured(options).costs.local_window, 0u);
}

TEST(StepCosts, AreMeasuredOnAnIdleEngineThatStaysClean) {
  const Measured world(EngineWorld::small());
  const StepCosts& costs = world.costs;
  ASSERT_FALSE(costs.rows.empty());
  EXPECT_EQ(costs.rows.front(), 1u);
  EXPECT_LE(costs.rows.back(), world.engine->batch_tokens());
  // A context of 128 has no room for the deeper ones.
  EXPECT_EQ(costs.contexts, std::vector<uint32_t>{0});
  ASSERT_EQ(costs.times.size(), costs.rows.size());
  for (const Duration time : costs.times) EXPECT_GT(time.count(), 0);
  EXPECT_GT(costs.prefill_row_ns, 0u);
  EXPECT_TRUE(world.engine->idle());
  EXPECT_EQ(world.engine->stats().blocks_free, world.engine->stats().blocks_total);
  world.engine->check_conservation();
}

TEST(StepCosts, KnowWhereRowsBeginToCost) {
  Roofline device({.weights_us = 12'000, .row_us = 66, .context_row_ns = 20});
  const StepCosts costs = measure_step_costs(device, device);
  EXPECT_GT(costs.rows.back(), 200u);
  for (const uint32_t rows : {1, 100, 150, 181, 200, 300, 500, 700}) {
    const auto expected = static_cast<double>(device.take(rows, 0).count());
    EXPECT_NEAR(costs.rows_ns(rows), expected, 0.04 * expected) << rows;
  }
  // Many sequences, each with its own context.
  const std::vector<StepShare> shares(100, {2, 2000});
  const auto expected = device.take(200, 0) + 200 * 2000 * Duration(20);
  EXPECT_NEAR(to_ms(costs.step(shares)), to_ms(expected), 0.04 * to_ms(expected));
  EXPECT_LT(device.now(), std::chrono::seconds(6)) << "of the start";
}

TEST(StepCosts, KnowWhereATileOfRowsEnds) {
  for (const uint32_t tile : {4, 8}) {
    Roofline device(
        {.weights_us = 10'000, .row_us = 4'000, .context_row_ns = 100, .tile_rows = tile});
    const StepCosts costs = measure_step_costs(device, device);
    for (const uint32_t rows : {1u, 3u, 4u, 5u, 8u, 9u, 16u, 17u, 25u, 32u, 33u, 36u, 40u, 49u}) {
      for (const uint32_t context : {0u, 1024u, 2000u}) {
        const StepShare share{rows, context};
        const double expected = to_ms(device.take(rows, context));
        EXPECT_NEAR(to_ms(costs.step({&share, 1})), expected, 0.02 * expected)
            << "tile " << tile << ", rows " << rows << ", context " << context;
      }
    }
  }
}

TEST(StepCosts, KnowThatAnotherTileBeginsBehindTheTable) {
  // Rows of a second are measured up to 32 only, in the middle of nothing.
  for (const int64_t row_us : {1'000, 4'000, 12'000, 32'000}) {
    Roofline device({.weights_us = 10'000, .row_us = row_us, .tile_rows = 16});
    const StepCosts costs = measure_step_costs(device, device);
    for (const uint32_t rows : {33u, 40u, 48u, 65u, 80u, 128u, 256u}) {
      const double expected = to_ms(device.take(rows, 0));
      const double more = expected - to_ms(device.take(device.rows_most(), 0));
      const double said = costs.rows_ns(rows) / 1e6;
      EXPECT_LT(said, 1.05 * expected) << row_us << ", rows " << rows;
      if (more > 0) {
        EXPECT_GT(said, expected - 0.6 * more) << row_us << ", rows " << rows;
      }
    }
  }
}

TEST(StepCosts, OfOneSlowMomentAreNoOtherSteps) {
  const Roofline::Model slow{.weights_us = 90'000, .row_us = 10'000, .context_row_ns = 100};
  const Roofline::Model fast{.weights_us = 12'000, .row_us = 66, .context_row_ns = 20};
  for (const Roofline::Model& model : {slow, fast}) {
    Roofline quiet(model);
    const StepCosts wanted = measure_step_costs(quiet, quiet);
    for (int step = 0; step < quiet.steps(); ++step) {
      Roofline::Model disturbed = model;
      disturbed.disturbed_step = step;
      Roofline other(disturbed);
      const StepCosts costs = measure_step_costs(other, other);
      EXPECT_EQ(costs.rows, wanted.rows) << step;
      EXPECT_EQ(costs.times, wanted.times) << step;
      EXPECT_EQ(costs.prefill_row_ns, wanted.prefill_row_ns) << step;
      EXPECT_EQ(costs.attention_pair_ps, wanted.attention_pair_ps) << step;
    }
  }
}

TEST(StepCosts, AreNotMeasuredFurtherWhereEachRowCostsItsPrice) {
  Roofline device({.weights_us = 1'000, .row_us = 100});
  const StepCosts costs = measure_step_costs(device, device);
  EXPECT_EQ(device.rows_most(), 32u);
  EXPECT_GE(costs.rows.back(), device.batch_tokens()) << "all that can run is learnt apart";
  EXPECT_NEAR(costs.rows_ns(512), 51.2e6, 1e6);
}

TEST(StepCosts, AreNotMeasuredFurtherWhereStepsAreLong) {
  Roofline device({.weights_us = 600'000, .row_us = 1'000});
  measure_step_costs(device, device);
  EXPECT_EQ(device.rows_most(), 32u);
}

TEST(ChunkCosts, AreMeasuredWhereTheEngineHasRoom) {
  EngineOptions options = EngineWorld::small();
  options.context_tokens = 512;
  options.batch_tokens = 512;
  const SteadyClock clock;
  const auto engine = Engine::create(EngineWorld::model(), options, clock).value();
  const ChunkCosts costs = measure_chunk_costs(*engine, clock);
  EXPECT_EQ(costs.rows, (std::vector<uint32_t>{128, 256, 512}));
  ASSERT_EQ(costs.buckets[0].size(), 3u);
  for (const Duration time : costs.buckets[0]) EXPECT_GT(time.count(), 0);
  EXPECT_TRUE(costs.buckets[1].empty()) << "a context of 512 has no room for it";
  EXPECT_TRUE(engine->idle());
}

/// Goes on by a random time, the same ones in each life, when it is looked at.
class JumpyClock final : public Clock {
 public:
  explicit JumpyClock(uint32_t ms_max) : ms_max_(ms_max) {}
  TimePoint now() const override {
    now_ += std::chrono::milliseconds(1 + random_.below(ms_max_));
    return now_;
  }

 private:
  uint32_t ms_max_;
  mutable Random random_{7};
  mutable TimePoint now_{};
};

TEST(ChunkCosts, MakeThePlanOfAnAutomaticOne) {
  EngineOptions options = EngineWorld::small();
  options.context_tokens = 512;
  options.batch_tokens = 512;
  const JumpyClock clock(50);
  const auto plain = Engine::create(EngineWorld::model(), options, clock).value();
  EXPECT_TRUE(plain->decode_plan().bounds_nothing());
  const auto expected = choose_chunks(measure_chunk_costs(*plain, clock));
  EXPECT_NE(expected[0], 0u) << "times were to make small chunks look good";
  options.decode_plan.is_automatic = true;
  const JumpyClock again(50);
  const auto automatic = Engine::create(EngineWorld::model(), options, again).value();
  EXPECT_EQ(automatic->decode_plan().rows, expected);
}

TEST(ChunkCosts, AreLeftOutWhereTheyWouldTakeTooLong) {
  EngineOptions options = EngineWorld::small();
  options.context_tokens = 512;
  options.batch_tokens = 512;
  const JumpyClock clock(1000);
  const auto engine = Engine::create(EngineWorld::model(), options, clock).value();
  const ChunkCosts costs = measure_chunk_costs(*engine, clock);
  EXPECT_TRUE(costs.buckets[0].empty());
}

TEST(StepCosts, NeverFallWithContextOrRows) {
  EngineOptions options = EngineWorld::small();
  options.kv_memory_bytes = uint64_t{64} << 20;
  options.context_tokens = EngineWorld::model()->config.context_length;
  const StepCosts costs = Measured(options).costs;
  const size_t width = costs.rows.size();
  ASSERT_GT(costs.times.size(), 1u);
  for (size_t i = 0; i < costs.times.size(); ++i) {
    const bool is_deeper = i >= width;
    const bool has_more_rows = i % width > 0;
    EXPECT_GE(costs.times[i], is_deeper ? costs.times[i - width] : Duration(0));
    EXPECT_GE(costs.times[i], has_more_rows ? costs.times[i - 1] : Duration(0));
  }
}

}  // namespace
}  // namespace outrider::model
