#include "gateway/prompt.hpp"

#include <gtest/gtest.h>

#include "base/limits.hpp"
#include "gateway/request_parser.hpp"
#include "gateway/scripted_backend.test.hpp"

namespace outrider::gateway {
namespace {

using namespace testing_support;

Result<PreparedRequest> prepared(RequestKind kind, const Json& body, uint32_t context_tokens) {
  auto served = LoopbackGateway::tiny_model();
  served.context_tokens = context_tokens;
  auto parsed = parse_request_body(kind, to_text(body));
  if (!parsed) return parsed.error();
  return prepare_request(std::move(*parsed), {std::make_shared<const ServedModel>(served)}, {});
}

Json completion(size_t prompts, size_t prompt_tokens) {
  Json body = Json::object();
  body["prompt"] = std::vector(prompts, std::vector<int32_t>(prompt_tokens, 5));
  body["max_tokens"] = 1;
  return body;
}

TEST(PrepareRequest, RefusesMoreLogprobsThanOneAnswerHolds) {
  constexpr auto k_kind = RequestKind::completion;
  // 21 logprobs a token, 16 choices
  const auto most = static_cast<uint32_t>(limits::answer_logprobs_max / 21 / 16);
  Json body = completion(1, 4);
  body["n"] = 16;
  body["logprobs"] = 20;
  body["max_tokens"] = most;
  EXPECT_TRUE(prepared(k_kind, body, 100'000).ok());
  body["max_tokens"] = most + 1;
  auto refused = prepared(k_kind, body, 100'000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "logprobs");
  EXPECT_NE(refused.error().message.find(std::to_string(limits::answer_logprobs_max)),
            std::string::npos);
  body["stream"] = true;  // many small parts
  EXPECT_TRUE(prepared(k_kind, body, 100'000).ok());
}

TEST(PrepareRequest, CountsThePromptsLogprobsToo) {
  constexpr auto k_kind = RequestKind::completion;
  Json body = completion(128, 200);  // 25600 tokens
  body["prompt_logprobs"] = 5;
  EXPECT_TRUE(prepared(k_kind, body, 256).ok());
  body["prompt_logprobs"] = 20;
  auto refused = prepared(k_kind, body, 256);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "prompt_logprobs");
  body.erase("prompt_logprobs");
  body["echo"] = true;
  body["stream"] = true;  // the echo comes at once
  body["logprobs"] = 20;
  refused = prepared(k_kind, body, 256);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "logprobs");
}

TEST(PrepareRequest, AChatWithoutALimitOfItsOwnFillsTheContextOrTheLogprobs) {
  Json body = Json::parse(R"({"messages":[{"role":"user","content":"hi"}]})");
  const auto open_end = [&] {
    return prepared(RequestKind::chat, body, 100'000)->prompts[0].stop.max_tokens;
  };
  EXPECT_GT(open_end(), 99'000u);
  body["logprobs"] = true;
  body["top_logprobs"] = 20;
  EXPECT_EQ(open_end(), limits::answer_logprobs_max / 21);
  body["stream"] = true;
  EXPECT_EQ(open_end(), limits::answer_logprobs_max / 21);
  body["max_tokens"] = 90'000;  // small parts may be many
  EXPECT_EQ(open_end(), 90'000u);
}

}  // namespace
}  // namespace outrider::gateway
