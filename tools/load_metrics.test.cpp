#include "tools/load_metrics.hpp"

#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

/// Sent at 10 s: text at 10.2, 10.3 and 10.5, finish at 10.6; five tokens, two of them in one event
/// and one without text.
RequestRecord worked_example() {
  RequestRecord record;
  record.sent_s = 10;
  record.outputs_s = {10.2, 10.3, 10.5};
  record.last_s = 10.6;
  record.ended_s = 10.7;
  record.prompt_tokens = 7;
  record.cached_tokens = 3;
  record.output_tokens = 5;
  return record;
}

TEST(RequestRecord, FollowsTheFormulasOfOneRequest) {
  const RequestRecord record = worked_example();
  EXPECT_NEAR(record.ttft_s(), 0.2, 1e-12);
  EXPECT_NEAR(record.e2e_s(), 0.6, 1e-12);
  EXPECT_NEAR(*record.tpot_s(), (0.6 - 0.2) / 4, 1e-12);
}

TEST(RequestRecord, HasNoTimePerTokenAfterTheFirstWhenThereIsOneToken) {
  RequestRecord record = worked_example();
  record.output_tokens = 1;
  EXPECT_FALSE(record.tpot_s().has_value());
}

TEST(Percentile, IsLinearBetweenNeighboursLikeNumpy) {
  const std::vector<double> samples = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(percentile(samples, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(samples, 0.5), 3);
  EXPECT_DOUBLE_EQ(percentile(samples, 0.9), 4 + 0.7 * 4);
  EXPECT_DOUBLE_EQ(percentile(samples, 1), 8);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{5}, 0.99), 5);
}

TEST(Distribution, SortsItsSamplesAndIsZeroWithoutAny) {
  const Distribution some = Distribution::of({30, 10, 20});
  EXPECT_EQ(some.count, 3u);
  EXPECT_DOUBLE_EQ(some.mean, 20);
  EXPECT_DOUBLE_EQ(some.p50, 20);
  EXPECT_DOUBLE_EQ(some.max, 30);
  EXPECT_EQ(Distribution::of({}).count, 0u);
}

TEST(Slo, IsKeptOnlyWhenEachBoundIs) {
  const RequestRecord record = worked_example();  // 200, 100 and 600 ms
  EXPECT_TRUE((Slo{}.kept_by(record)));
  EXPECT_TRUE((Slo{.ttft_ms = 201, .tpot_ms = 101, .e2e_ms = 601}.kept_by(record)));
  EXPECT_FALSE((Slo{.ttft_ms = 199}.kept_by(record)));
  EXPECT_FALSE((Slo{.tpot_ms = 99}.kept_by(record)));
  EXPECT_FALSE((Slo{.e2e_ms = 599}.kept_by(record)));
  RequestRecord one_token = record;
  one_token.output_tokens = 1;
  EXPECT_TRUE((Slo{.tpot_ms = 0.001}.kept_by(one_token)));
}

TEST(LoadSummary, PoolsSamplesAndCountsErrorsByKind) {
  RequestRecord slow = worked_example();  // twice as slow, and sent half a second later
  slow.sent_s = 10.5;
  slow.outputs_s = {10.9, 11.1, 11.5};
  slow.last_s = 11.7;
  slow.ended_s = 12;
  slow.late_s = 0.002;
  RequestRecord refused;
  refused.sent_s = 10.1;
  refused.ended_s = 10.2;
  refused.error = "http 429";
  const std::vector<RequestRecord> records = {worked_example(), slow, refused, refused};
  const LoadSummary summary = summarise(records, {.ttft_ms = 300});
  EXPECT_EQ(summary.completed, 2u);
  EXPECT_EQ(summary.errors, (std::map<std::string, uint64_t>{{"http 429", 2}}));
  EXPECT_NEAR(summary.duration_s, 2, 1e-12);
  EXPECT_NEAR(summary.requests_per_s, 1, 1e-12);
  EXPECT_NEAR(summary.output_tokens_per_s, 5, 1e-12);
  EXPECT_NEAR(summary.goodput_per_s, 0.5, 1e-12);
  EXPECT_EQ(summary.prompts.sum, 14u);
  EXPECT_EQ(summary.answers.sum, 10u);
  EXPECT_EQ(summary.cached_tokens, 6u);
  // Gaps 100, 200, 200 and 400 ms of both requests together.
  EXPECT_EQ(summary.itl_ms.count, 4u);
  EXPECT_NEAR(summary.itl_ms.mean, 225, 1e-9);
  EXPECT_NEAR(summary.itl_ms.p50, 200, 1e-9);
  EXPECT_NEAR(summary.ttft_ms.p50, 300, 1e-9);
  EXPECT_NEAR(summary.tpot_ms.max, 200, 1e-9);
  EXPECT_NEAR(summary.e2e_ms.max, 1200, 1e-9);
  EXPECT_EQ(summary.late_ms.count, 4u);
}

TEST(LoadSummary, SaysWhatRequestsHadOtherThanAsked) {
  RequestRecord record = worked_example();  // 7 prompt tokens, 5 of output
  const auto told = [&](std::vector<RequestRecord> records, AskedTokens asked) {
    return mismatch_text(summarise(records, {}), asked);
  };
  EXPECT_EQ(told({record}, {.prompt = 7, .answer = 5}), "");
  EXPECT_EQ(told({record}, {.prompt = 6, .answer = 5}), "") << "a BOS token";
  EXPECT_EQ(told({record}, {.prompt = 5, .answer = 5}),
            "the server counted 7.0 of 5 prompt tokens");
  EXPECT_EQ(
      told({record}, {.prompt = 128, .answer = 64}),
      "answers had 5.0 of 64 tokens in the mean; the server counted 7.0 of 128 prompt tokens");
  RequestRecord longer = record;
  longer.output_tokens = 7;
  EXPECT_EQ(told({record, longer}, {.prompt = 7, .answer = 6}),
            "answers had 6.0 of 6 tokens in the mean")
      << "a right mean of wrong answers";
  record.prompt_tokens = 0;
  EXPECT_EQ(told({record}, {.prompt = 7, .answer = 5}), "the server counted no prompt tokens");
  record.error = "timeout";
  EXPECT_EQ(told({record}, {.prompt = 7, .answer = 5}), "");
}

TEST(LoadSummary, SaysWhyALoadIsNoSuccess) {
  const RequestRecord record = worked_example();  // 5 tokens of output
  RequestRecord failed = record;
  failed.error = "timeout";
  const auto told = [](std::vector<RequestRecord> records, uint32_t asked) {
    return shortfall_text(summarise(records, {}), asked);
  };
  EXPECT_EQ(told({record}, 5), "");
  EXPECT_EQ(told({record}, 0), "");
  EXPECT_EQ(told({record}, 6), "an answer had 5 of 6 tokens");
  EXPECT_EQ(told({record, failed}, 5), "1 of 2 requests failed");
  EXPECT_EQ(told({failed}, 5), "1 of 1 request failed");
}

TEST(LoadSummary, OfFailuresAloneHasNoRates) {
  RequestRecord refused;
  refused.sent_s = refused.ended_s = 1;
  refused.error = "disconnected";
  const LoadSummary summary = summarise({&refused, 1}, {});
  EXPECT_EQ(summary.completed, 0u);
  EXPECT_EQ(summary.requests_per_s, 0);
  EXPECT_EQ(summarise({}, {}).errors.size(), 0u);
}

}  // namespace
}  // namespace outrider::tools
