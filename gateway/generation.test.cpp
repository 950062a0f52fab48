#include "gateway/generation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/scripted_backend.test.hpp"

namespace outrider::gateway {
namespace {

using namespace testing_support;
using testing::HasSubstr;

TEST(Generation, MeasuresTheTimePerTokenOfEachChoiceAlone) {
  ScriptedBackend backend(LoopbackGateway::tiny_tokenizer());
  ManualClock clock;
  ServingMetrics metrics("tiny");
  PreparedRequest request;
  request.served = std::make_shared<const ServedModel>(LoopbackGateway::tiny_model());
  request.parsed.generation.choices = 2;
  request.prompts = {request.parsed.generation};
  request.prompts[0].prompt = {1};
  Generation generation({backend, clock, metrics.requests("tiny"), 1}, std::move(request));
  auto& session = backend.sessions[0];
  // Both choices have three tokens, two seconds apart; the second choice starts late.
  for (uint32_t step = 0; step < 4; ++step) {
    if (step < 3) backend.say_ids(session, {5}, 0);
    if (step > 0) backend.say_ids(session, {5}, 1);
    generation.take();
    clock.advance(std::chrono::seconds(2));
  }
  backend.end(session, schema::StreamDone::Outcome::done);
  generation.take();
  ASSERT_TRUE(generation.finished());
  const std::string text = metrics.render();
  const std::string name = "vllm:request_time_per_output_token_seconds";
  EXPECT_THAT(text, HasSubstr(name + "_count{model_name=\"tiny\"} 2"));
  EXPECT_THAT(text, HasSubstr(name + "_sum{model_name=\"tiny\"} 4"));
}

}  // namespace
}  // namespace outrider::gateway
