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

TEST(ServingMetrics, GivesTheSameCounterForTheSameLabel) {
  ServingMetrics metrics("tiny");
  EXPECT_EQ(&metrics.http_responses(200), &metrics.http_responses(200));
  EXPECT_NE(&metrics.http_responses(200), &metrics.http_responses(400));
}

}  // namespace
}  // namespace outrider
