#include "tests/exactness/harness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exactness/forwarding_ops.test.hpp"

namespace outrider::exactness {
namespace {

using testing::IsEmpty;
using testing::Not;

Options tiny(const std::string& name, uint64_t seed, uint32_t count) {
  Options options;
  options.model = "tests/support/models/" + name + ".gguf";
  options.seed = seed;
  options.count = count;
  const auto isas = kernels::available_isas();
  options.isas.assign(isas.begin(), isas.end());
  return options;
}

Report must_run(const Options& options) {
  auto report = run(options, nullptr);
  OUTRIDER_CHECK(report.ok(), report.error().message);
  return std::move(report).value();
}

TEST(Exactness, TinyModelsGiveTheSameBitsAloneAndInAnyCompany) {
  uint64_t preemptions = 0;
  uint64_t parkings = 0;
  uint64_t strangers = 0;
  uint64_t resumptions = 0;
  uint64_t cached_tokens = 0;
  uint64_t evictions = 0;
  uint64_t read_blocks = 0;
  uint64_t bounded_plans = 0;
  uint64_t windowed = 0;
  uint64_t other_kinds = 0;
  uint64_t turned_keys = 0;
  for (const std::string name : {"tiny-llama", "tiny-qwen2"}) {
    const Report report = must_run(tiny(name, 1, 96));
    EXPECT_THAT(report.failures, IsEmpty()) << name << ": " << to_string(report.tally);
    EXPECT_TRUE(report.tally.exact());
    EXPECT_EQ(report.tally.requests, 96u);
    EXPECT_GT(report.tally.tokens, 500u);
    EXPECT_GT(report.tally.logprobs, 500u);
    preemptions += report.disturbances.preemptions;
    parkings += report.disturbances.parkings;
    strangers += report.disturbances.strangers;
    resumptions += report.disturbances.resumptions;
    cached_tokens += report.disturbances.cached_tokens;
    evictions += report.disturbances.evictions;
    read_blocks += report.disturbances.read_blocks;
    bounded_plans += report.disturbances.bounded_plans;
    windowed += report.disturbances.windowed;
    other_kinds += report.disturbances.other_kinds;
    turned_keys += report.disturbances.turned_keys;
  }
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(parkings, 0u);
  EXPECT_GT(strangers, 0u);
  EXPECT_GT(resumptions, 0u);
  EXPECT_GT(cached_tokens, 1000u);
  EXPECT_GT(evictions, 0u);
  EXPECT_GT(read_blocks, 0u);
  EXPECT_GT(bounded_plans, 0u);
  EXPECT_GT(windowed, 0u);
  EXPECT_GT(other_kinds, 0u);
  EXPECT_GT(turned_keys, 0u);
}

/// A back end whose products depend, by a few parts in a million, on the number of rows.
class BatchVariantOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  void matmul(const kernels::Rows& rows, size_t m,
              std::span<const kernels::Product> products) override {
    ForwardingOps::matmul(rows, m, products);
    const float error = 1.0f + 1e-6f * static_cast<float>(m % 5);
    for (const kernels::Product& p : products) {
      for (size_t i = 0; i < m * p.w->rows(); ++i) p.y[i] *= error;
    }
  }
};

/// A back end that leaks: a row sees a trace of the one before it.
class LeakingOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  void attention(const kernels::KvGeometry& geometry, uint32_t layer,
                 std::span<const kernels::Segment> segments, const float* q, size_t heads,
                 float scale, const std::byte* pool, float* out) override {
    ForwardingOps::attention(geometry, layer, segments, q, heads, scale, pool, out);
    const size_t width = heads * geometry.head_dim;
    for (const kernels::Segment& s : segments) {
      if (s.first_row > 0) out[s.first_row * width] += 1e-5f * out[(s.first_row - 1) * width];
    }
  }
};

template <class BadOps>
Report run_with(uint64_t seed) {
  Options options = tiny("tiny-llama", seed, 24);
  options.make_ops = [](kernels::Isa isa) {
    return std::make_shared<BadOps>(kernels::make_cpu_ops(1, isa));
  };
  return must_run(options);
}

TEST(Exactness, ABackEndThatDependsOnTheBatchSizeIsCaught) {
  const Report report = run_with<BatchVariantOps>(2);
  EXPECT_FALSE(report.tally.exact());
  EXPECT_GT(report.tally.differing_logprobs, 0u);
  ASSERT_THAT(report.failures, Not(IsEmpty()));
  EXPECT_THAT(report.failures[0], testing::HasSubstr("seed 2, request "));
}

TEST(Exactness, ABackEndThatLeaksBetweenSequencesIsCaught) {
  EXPECT_FALSE(run_with<LeakingOps>(3).tally.exact());
}

/// A back end on a machine without memory.
class StarvedOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  std::unique_ptr<kernels::Matrix> pack(const kernels::WeightView&) override {
    throw std::bad_alloc();
  }
};

TEST(Exactness, AModelThatMemoryCannotHoldIsAnError) {
  Options options = tiny("tiny-llama", 1, 1);
  options.make_ops = [](kernels::Isa isa) {
    return std::make_shared<StarvedOps>(kernels::make_cpu_ops(1, isa));
  };
  const auto report = run(options, nullptr);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::io);
}

TEST(Exactness, AMissingModelIsAnError) {
  Options options = tiny("tiny-none", 1, 1);
  EXPECT_FALSE(run(options, nullptr).ok());
}

TEST(Outcome, EachKindOfDifferenceIsCounted) {
  Outcome a;
  a.tokens = {{5, TokenLogprob{-1.0f, 1, {{5, -1.0f}}}}, {6, std::nullopt}};
  EXPECT_TRUE(compare(a, a).exact());
  EXPECT_EQ(compare(a, a).logprobs, 2u);
  Outcome b = a;
  b.tokens[1].id = 7;
  EXPECT_EQ(compare(a, b).differing_tokens, 1u);
  b = a;
  b.tokens.pop_back();
  EXPECT_EQ(compare(a, b).differing_tokens, 1u);
  b = a;
  b.tokens[0].logprob->logprob = std::nextafter(-1.0f, 0.0f);
  EXPECT_EQ(compare(a, b).differing_logprobs, 1u);
  b = a;
  b.tokens[0].logprob->top[0].first = 4;
  EXPECT_EQ(compare(a, b).differing_logprobs, 1u);
  b = a;
  b.finish.reason = FinishReason::length;
  EXPECT_EQ(compare(a, b).differing_ends, 1u);
  b = a;
  b.prompt_tokens = {{1, std::nullopt}};
  EXPECT_EQ(compare(a, b).differing_tokens, 1u);
}

}  // namespace
}  // namespace outrider::exactness
