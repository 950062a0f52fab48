#include "base/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider {
namespace {

using testing::HasSubstr;

TEST(ServingMetrics, RendersNamesTypesAndLabels) {
  ServingMetrics metrics("tiny");
  metrics.requests_running.Set(3);
  metrics.requests("tiny").prompt_tokens.Increment(17);
  metrics.requests("tiny").time_to_first_token_seconds.Observe(0.03);
  metrics.requests("tiny").success.of(to_string(FinishReason::stop)).Increment();
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("# TYPE vllm:num_requests_running gauge"));
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running{model_name=\"tiny\"} 3"));
  EXPECT_THAT(text, HasSubstr("vllm:prompt_tokens_total{model_name=\"tiny\"} 17"));
  EXPECT_THAT(text, HasSubstr("finished_reason=\"stop\""));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_bucket"));
  EXPECT_THAT(text, HasSubstr("vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 1"));
}

TEST(ServingMetrics, WithoutAnEngineNothingIsSaidOfOne) {
  ServingMetrics metrics("tiny");
  metrics.drafts.Increment();
  const std::string whole = metrics.render();
  metrics.leave_out_engine();
  const std::string text = metrics.render();
  for (const char* name : {"outrider_engine_steps_total", "vllm:num_preemptions_total",
                           "vllm:prefix_cache_hits_total", "outrider_prefix_cache_blocks"}) {
    EXPECT_THAT(whole, HasSubstr(name));
    EXPECT_THAT(text, testing::Not(HasSubstr(name)));
  }
  // Members tell of these.
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running"));
  EXPECT_THAT(text, HasSubstr("vllm:spec_decode_num_drafts_total{model_name=\"tiny\"} 1"));
}

TEST(ServingMetrics, GivesTheSameCounterForTheSameLabel) {
  ServingMetrics metrics("tiny");
  EXPECT_EQ(&metrics.http_responses(200), &metrics.http_responses(200));
  EXPECT_NE(&metrics.http_responses(200), &metrics.http_responses(400));
}

}  // namespace
}  // namespace outrider
