#include "tools/load_run.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tools/canned_server.test.hpp"

namespace outrider::tools {
namespace {

/// Pushes the text in pieces of `cut` bytes, piece i at i seconds.
RequestRecord read(const std::string& text, size_t cut, const HttpEnd& end,
                   std::string* detail = nullptr) {
  RequestRecord record;
  CompletionReader reader(record);
  double now = 0;
  for (size_t at = 0; at < text.size(); at += cut) {
    reader.push(end.status, text.substr(at, cut), now++);
  }
  reader.end(end, now);
  if (detail != nullptr) *detail = reader.detail();
  return record;
}

const HttpEnd k_whole = {.status = 200};
const std::string k_stream =
    ": ping\n\n"
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n"
    "data: {\"choices\":[{\"text\":\"b\"}]}\n\n"
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}},"
    "\"timings\":{\"draft_n\":3,\"draft_n_accepted\":2}}\n\n"
    "data: [DONE]\n\n";

TEST(CompletionReader, CountsOnlyEventsWithTextAndTakesTheServersCounts) {
  for (size_t cut = 1; cut <= k_stream.size(); ++cut) {
    const RequestRecord record = read(k_stream, cut, k_whole);
    ASSERT_TRUE(record.ok()) << record.error << " in pieces of " << cut;
    EXPECT_EQ(record.outputs_s.size(), 2u) << "pieces of " << cut;
    EXPECT_LE(record.outputs_s.back(), record.last_s);
    EXPECT_LE(record.last_s, record.ended_s);
    EXPECT_EQ(record.prompt_tokens, 9u);
    EXPECT_EQ(record.cached_tokens, 4u);
    EXPECT_EQ(record.output_tokens, 5u);
    EXPECT_EQ(record.draft_tokens, 3u);
    EXPECT_EQ(record.accepted_tokens, 2u);
  }
}

TEST(CompletionReader, CountsEventsWhenTheServerCountsNothing) {
  const RequestRecord record =
      read(k_stream.substr(0, k_stream.find("data: {\"choices\":[],")), k_stream.size(), k_whole);
  EXPECT_TRUE(record.ok()) << record.error;
  EXPECT_EQ(record.output_tokens, 2u);
}

TEST(CompletionReader, TakesMembersOfAnyType) {
  const RequestRecord record = read(
      "data: {\"error\":null,\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":null,\"usage\":{\"prompt_tokens\":null,\"completion_tokens\":3}}\n\n",
      99, k_whole);
  EXPECT_TRUE(record.ok()) << record.error;
  EXPECT_EQ(record.prompt_tokens, 0u);
  EXPECT_EQ(record.output_tokens, 3u);
}

TEST(CompletionReader, NamesEachKindOfFailure) {
  std::string detail;
  EXPECT_EQ(read(R"({"error":{"message":"slow down"}})", 7, {.status = 429}, &detail).error,
            "http 429");
  EXPECT_EQ(detail, "slow down");
  EXPECT_EQ(read("<html>", 7, {.status = 502}, &detail).error, "http 502");
  EXPECT_EQ(detail, "<html>");
  EXPECT_EQ(read("data: {\"error\":{\"message\":\"lost\"}}\n\n", 99, k_whole, &detail).error,
            "error event");
  EXPECT_EQ(detail, "lost");
  read("data: {\"error\":{\"message\":\"\\u001b[2Jgone\\n\"}}\n\n", 99, k_whole, &detail);
  EXPECT_EQ(detail, "?[2Jgone ") << "a terminal shows it";
  read("\x1b]0;x\x07", 99, {.status = 502}, &detail);
  EXPECT_EQ(detail, "?]0;x?");
  read("data: " + std::string(100'000, 'x') + "\n\n", 999, k_whole, &detail);
  EXPECT_LT(detail.size(), 250u);
  EXPECT_EQ(read("data: what\n\n", 99, k_whole).error, "error event");
  EXPECT_EQ(read("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", 99, k_whole).error, "cut stream");
  EXPECT_EQ(
      read("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n", 99, k_whole)
          .error,
      "no output");
  EXPECT_EQ(read("", 1, {.status = 0, .failure = "disconnected"}).error, "disconnected");
  EXPECT_EQ(
      read("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", 99, {.status = 200, .failure = "timeout"})
          .error,
      "timeout");
}

TEST(LoadCell, SaysWhatItIs) {
  EXPECT_EQ((LoadCell{.streams = 1}.name()), "1 stream");
  EXPECT_EQ((LoadCell{.streams = 8}.name()), "8 streams");
  EXPECT_EQ((LoadCell{.rate = 2.5}.name()), "2.5 req/s");
}

TEST(PoissonGap, HasTheMeanAndTheShareBelowItOfAnExponential) {
  constexpr uint64_t k_seed = 3;
  constexpr int k_draws = 100'000;
  Random random(k_seed);
  double sum = 0;
  int below_mean = 0;
  for (int i = 0; i < k_draws; ++i) {
    const double gap = poisson_gap_s(4, random.uniform());
    ASSERT_GE(gap, 0);
    sum += gap;
    below_mean += gap < 0.25 ? 1 : 0;
  }
  EXPECT_NEAR(sum / k_draws, 0.25, 0.005) << "seed " << k_seed;
  EXPECT_NEAR(static_cast<double>(below_mean) / k_draws, 1 - std::exp(-1.0), 0.01)
      << "seed " << k_seed;
}

TEST(RunLoad, KnowsOfAnswersThatAreShortAndPromptsThatWereCut) {
  const CannedServer::Reply cut = {
      200,
      "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n"};
  const CannedServer server({cut, cut});
  auto streams = HttpStreams::create(server.url(), "", std::chrono::minutes(1));
  ASSERT_TRUE(streams.ok());
  const std::vector<std::string> bodies(2, "{}");
  const SteadyClock clock;
  Random random(1);
  const LoadOutcome outcome = run_load(**streams, clock, {.streams = 1}, bodies, random);
  const LoadSummary summary = summarise(outcome.records, {});
  EXPECT_EQ(summary.completed, 2u) << outcome.details.size();
  EXPECT_EQ(
      mismatch_text(summary, {.prompt = 128, .answer = 64}),
      "answers had 3.0 of 64 tokens in the mean; the server counted 7.0 of 128 prompt tokens");
}

TEST(RunLoad, CountsEachRequestToAServerThatIsNotThereAsOneError) {
  auto streams = HttpStreams::create("http://127.0.0.1:1", "", std::chrono::seconds(10));
  ASSERT_TRUE(streams.ok());
  const std::vector<std::string> bodies(5, "{}");
  const SteadyClock clock;
  Random random(1);
  for (const LoadCell& cell : {LoadCell{.streams = 2}, LoadCell{.rate = 1000}}) {
    std::vector<size_t> ended;
    const LoadOutcome outcome = run_load(**streams, clock, cell, bodies, random,
                                         [&](size_t count) { ended.push_back(count); });
    EXPECT_EQ(ended, (std::vector<size_t>{1, 2, 3, 4, 5}));
    const LoadSummary summary = summarise(outcome.records, {});
    EXPECT_EQ(summary.completed, 0u);
    EXPECT_EQ(summary.errors, (std::map<std::string, uint64_t>{{"disconnected", 5}}));
    EXPECT_EQ(outcome.details.count("disconnected"), 1u);
  }
}

}  // namespace
}  // namespace outrider::tools
