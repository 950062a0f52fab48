#include "tools/bench_run.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/support/models.hpp"

namespace outrider::tools {
namespace {

TEST(BenchCases, HaveTheNamesOfLlamaBench) {
  std::vector<std::string> names;
  for (const BenchCase& bench : bench_cases({512, 64, {0, 4096}, {1, 8}})) {
    names.push_back(bench.name());
  }
  const std::vector<std::string> expected = {"pp512",     "pp512@4096", "tg64",
                                             "tg64@4096", "tg64x8",     "tg64x8@4096"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(bench_cases({0, 64, {0}, {1}}).size(), 1u);
  EXPECT_EQ(bench_cases({512, 0, {0}, {1, 8}}).size(), 1u);
}

TEST(BenchLayout, StartsTheMiddleRepetitionOfADeepDecodeTestAtItsDepth) {
  const BenchCase deep{.generate = 64, .depth = 1024};
  const auto three = BenchLayout::of(deep, 3, 8192);
  EXPECT_EQ(three.per_filling, 3u);
  EXPECT_EQ(three.first_depth + 64, 1024u);
  EXPECT_EQ(three.sequence_tokens(deep), 1024u - 64 + 3 * 64 + 1);
  EXPECT_EQ(BenchLayout::of(deep, 1, 8192).first_depth, 1024u);
  EXPECT_EQ(BenchLayout::of(deep, 2, 8192).first_depth, 1024u);
}

TEST(BenchLayout, FillsForEachRepetitionWhereTheyCannotFollowEachOther) {
  for (const BenchCase& bench : {BenchCase{.prompt = 512, .depth = 1024}, BenchCase{.generate = 64},
                                 BenchCase{.generate = 64, .depth = 64}}) {
    const auto layout = BenchLayout::of(bench, 3, 8192);
    EXPECT_EQ(layout.per_filling, 1u) << bench.name();
    EXPECT_EQ(layout.first_depth, bench.depth) << bench.name();
    EXPECT_EQ(layout.sequence_tokens(bench), bench.sequence_tokens()) << bench.name();
  }
  const BenchCase last{.generate = 64, .depth = 8192 - 65};
  EXPECT_EQ(BenchLayout::of(last, 3, 8192).per_filling, 1u) << "the context ends";
}

TEST(ModelCost, CountsTheHeadOncePerPrefillAndForEachDecodedToken) {
  const ModelCost cost{.body_weights = 100, .head_weights = 10, .weight_bytes = 60, .kv_bytes = 2};
  EXPECT_EQ(cost.operations({.prompt = 8}), 2.0 * (8 * 100 + 10));
  EXPECT_EQ(cost.operations({.generate = 4, .batch = 2}), 2.0 * 8 * (100 + 10));
}

TEST(ModelCost, ReadsAllWeightsOnceAndThePositionsOfEverySequence) {
  const ModelCost cost{.body_weights = 100, .head_weights = 10, .weight_bytes = 60, .kv_bytes = 2};
  // Three steps after 10 tokens see 11, 12 and 13 positions.
  EXPECT_EQ(cost.step_bytes({.generate = 3, .batch = 1, .depth = 10}), 60 + 2 * 12);
  EXPECT_EQ(cost.step_bytes({.generate = 3, .batch = 4, .depth = 10}), 60 + 4 * 2 * 12);
  ModelCost windowed = cost;
  windowed.window = 7;
  EXPECT_EQ(windowed.step_bytes({.generate = 3, .batch = 1, .depth = 10}), 60 + 2 * 7);
}

TEST(BenchRow, TakesMediansAndPairsEachShareWithItsOwnRepetition) {
  const ModelCost cost{.body_weights = 100, .head_weights = 10, .weight_bytes = 60, .kv_bytes = 0};
  const BenchCase bench{.generate = 2};  // 440 operations, 60 bytes a step
  const std::vector<BenchSample> samples = {
      {.bench = bench,
       .seconds = 2,
       .steps = 2,
       .read_seconds = 0.5,
       .dot8_per_s = 440,
       .dot16_per_s = 220},
      {.bench = bench,
       .seconds = 8,
       .steps = 2,
       .read_seconds = 4,
       .dot8_per_s = 110,
       .dot16_per_s = 55},
      {.bench = bench,
       .seconds = 4,
       .steps = 2,
       .read_seconds = 1.6,
       .dot8_per_s = 220,
       .dot16_per_s = 110},
  };
  const BenchRow row = bench_row(bench, cost, samples);
  EXPECT_DOUBLE_EQ(row.tokens_per_s, 2 / 4.0);
  EXPECT_EQ(row.samples_per_s, (std::vector<double>{1, 0.25, 0.5}));
  EXPECT_DOUBLE_EQ(row.least_per_s(), 0.25);
  EXPECT_DOUBLE_EQ(row.most_per_s(), 1);
  EXPECT_NEAR(row.deviation_per_s(), 0.381881, 1e-6);  // sqrt(((5/12)² + (1/3)² + (1/12)²) / 2)
  EXPECT_DOUBLE_EQ(row.ms_per_step, 2000);
  EXPECT_DOUBLE_EQ(row.bytes_per_s, 30);
  EXPECT_DOUBLE_EQ(row.plain_read_per_s, 60 / 1.6);
  EXPECT_DOUBLE_EQ(row.read_share, 0.8);  // of 0.5, 1 and 0.8
  EXPECT_DOUBLE_EQ(row.dot8_share, 0.5);
  EXPECT_DOUBLE_EQ(row.dot16_share, 1.0);
}

TEST(BenchRow, TakesTheMeanOfTheMiddleTwoOfAnEvenNumber) {
  const ModelCost cost{.body_weights = 100, .head_weights = 10, .weight_bytes = 60, .kv_bytes = 0};
  const BenchCase bench{.generate = 2};
  std::vector<BenchSample> samples(2,
                                   {.bench = bench, .seconds = 1, .steps = 2, .read_seconds = 1});
  samples[1].seconds = 3;
  EXPECT_DOUBLE_EQ(bench_row(bench, cost, samples).ms_per_step, 1000);
  samples.pop_back();
  EXPECT_EQ(bench_row(bench, cost, samples).deviation_per_s(), 0) << "nothing is known of one";
}

TEST(BenchRow, NamesTheNearerLimit) {
  BenchRow row{.read_share = 0.7, .dot16_share = 0.2};
  EXPECT_TRUE(row.bandwidth_bound());
  EXPECT_EQ(row.limit_share(), 0.7);
  row.dot16_share = 0.8;
  EXPECT_FALSE(row.bandwidth_bound());
  EXPECT_EQ(row.limit_share(), 0.8);
  EXPECT_EQ(row.note(), nullptr);
  row.read_share = 1.01;
  EXPECT_NE(row.note(), nullptr) << "a share of more than there was";
}

TEST(BenchRunner, MeasuresExactlyTheRowsOfEachTest) {
  std::shared_ptr<kernels::Ops> ops = kernels::make_cpu_ops(2, kernels::default_isa());
  const auto model = testing_support::load_tiny("tiny-llama", ops);
  const auto cases = bench_cases({20, 6, {0, 37}, {1, 3}});
  const SteadyClock clock;
  model::EngineOptions options;
  options.batch_tokens = 16;
  auto runner = BenchRunner::create(model, options, cases, 3, clock);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  for (const BenchCase& bench : cases) {
    const auto samples = (*runner)->run(bench, 3);
    ASSERT_TRUE(samples.ok()) << samples.error().message;
    ASSERT_EQ(samples.value().size(), 3u);
    EXPECT_EQ(samples.value()[1].bench.depth, bench.depth);
    for (const BenchSample& sample : samples.value()) {
      EXPECT_EQ(sample.steps, bench.is_prefill() ? 2u : 6u) << bench.name();
      EXPECT_EQ(sample.read_seconds > 0, !bench.is_prefill()) << bench.name();
      EXPECT_GT(sample.dot8_per_s, 0) << bench.name();
      EXPECT_GT(sample.dot16_per_s, 0) << bench.name();
    }
  }
}

/// Memory that ends where nothing may be read.
class GuardedMemory {
 public:
  GuardedMemory() {
    EXPECT_NE(start_, MAP_FAILED);
    EXPECT_EQ(::mprotect(end(), k_page_bytes, PROT_NONE), 0);
  }
  ~GuardedMemory() { ::munmap(start_, 2 * k_page_bytes); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* end() const { return static_cast<std::byte*>(start_) + k_page_bytes; }

 private:
  static constexpr size_t k_page_bytes = size_t{1} << 16;
  void* start_ =
      ::mmap(nullptr, 2 * k_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

TEST(MachineLimits, ReadsAllBytesAndNoneAfterThemWithEachInstructionSet) {
  const GuardedMemory memory;
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const size_t turns : {1, 2, 7}) {
      const size_t bytes = turns * k_read_turn_bytes;
      read_all(isa, memory.end() - bytes, bytes);
      EXPECT_DEATH(read_all(isa, memory.end() - bytes + 1, bytes), "")
          << "the last byte of " << bytes << " is not read";
    }
  }
}

TEST(MachineLimits, TakeTimeToReach) {
  const SteadyClock clock;
  for (const kernels::Isa isa : kernels::available_isas()) {
    MachineLimits limits(2, isa, clock);
    for (const size_t bytes : {size_t{1} << 6, size_t{1000}, (size_t{3} << 20) + 192}) {
      EXPECT_GT(limits.read_seconds(bytes), 0) << bytes;
    }
    EXPECT_GT(limits.dot_operations_per_s(MachineLimits::Dot::int8), 0);
    EXPECT_GT(limits.dot_operations_per_s(MachineLimits::Dot::int16), 0);
  }
}

}  // namespace
}  // namespace outrider::tools
