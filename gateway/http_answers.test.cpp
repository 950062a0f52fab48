#include <gtest/gtest.h>

#include "gateway/raw_client.test.hpp"

/// What clients read when all goes well, over real loopback sockets.
namespace outrider::gateway {
namespace {

using namespace testing_support;
using Outcome = schema::StreamDone::Outcome;

std::string chat_body(const std::string& members = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" +
         (members.empty() ? "" : "," + members) + "}";
}
std::string text_body(const std::string& members = "") {
  return R"({"prompt":"hi there")" + (members.empty() ? "" : "," + members) + "}";
}

class HttpAnswers : public testing::Test {
 protected:
  HttpAnswers() : client(gateway) {
    gateway.backend.on_open = [this](ScriptedSession& s) { gateway.backend.answer(s, "Hello!"); };
  }
  LoopbackGateway gateway;
  RawClient client;
};

TEST_F(HttpAnswers, ChatComesAsOneObject) {
  auto r = client.request("POST", k_chat_path, chat_body(R"("seed":7,"model":"tiny")"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.headers["content-type"], "application/json");
  const Json body = r.json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_EQ(body["seed"], 7);
  EXPECT_EQ(body["system_fingerprint"], "fp_test");
  EXPECT_EQ(body["choices"][0]["index"], 0);
  EXPECT_EQ(body["choices"][0]["message"],
            Json::parse(R"({"role":"assistant","content":"Hello!"})"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  const auto& session = gateway.backend.sessions[0];
  EXPECT_EQ(body["usage"]["prompt_tokens"], session.request.prompt.size());
  EXPECT_EQ(body["usage"]["completion_tokens"], session.sent[0]);
  EXPECT_EQ(body["usage"]["total_tokens"], session.request.prompt.size() + session.sent[0]);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], ScriptedBackend::k_cached);
  EXPECT_EQ(body["timings"]["prefill_ms"], 2.0);
  EXPECT_EQ(body["timings"]["cached_tokens_device"],
            ScriptedBackend::k_cached - ScriptedBackend::k_cached_cold);
  EXPECT_EQ(body["timings"]["cached_tokens_cold"], ScriptedBackend::k_cached_cold);
  EXPECT_EQ(body["timings"]["draft_n"], ScriptedBackend::k_drafted);
  EXPECT_EQ(body["timings"]["draft_n_accepted"], ScriptedBackend::k_accepted);
  EXPECT_EQ(body["timings"]["pins_refused_device"], ScriptedBackend::k_refused);
  EXPECT_EQ(body["timings"]["pins_refused_cold"], ScriptedBackend::k_refused_cold);
  EXPECT_EQ(session.request.sampling.seed, 7u);
  // Without a limit of its own a chat answer may fill the context.
  EXPECT_EQ(session.request.stop.max_tokens + session.request.prompt.size(),
            LoopbackGateway::k_context);
}

TEST_F(HttpAnswers, ChatStreamsByTheWireRules) {
  auto r = client.request("POST", k_chat_path,
                          chat_body(R"("stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(r.status, 200);
  EXPECT_TRUE(r.headers["content-type"].starts_with("text/event-stream"));
  EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
  const auto events = sse_events(r.body);
  ASSERT_EQ(events.size(), 3u);
  for (const auto& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], events[0]["id"]);
    EXPECT_EQ(event["system_fingerprint"], "fp_test");
  }
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_TRUE(events[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(events[0].contains("seed"));
  EXPECT_EQ(events[1]["choices"][0]["delta"], Json::parse(R"({"content":"Hello!"})"));
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[2]["choices"], Json::array());
  EXPECT_EQ(events[2]["usage"]["completion_tokens"], gateway.backend.sessions[0].sent[0]);
  EXPECT_EQ(events[2]["usage"]["prompt_tokens_details"]["cached_tokens"],
            ScriptedBackend::k_cached);
}

TEST_F(HttpAnswers, CompletionsStreamAsTextCompletion) {
  auto r = client.request("POST", k_text_path, text_body(R"("stream":true)"));
  const auto events = sse_events(r.body);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["object"], "text_completion");
  EXPECT_TRUE(events[0]["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(events[0]["choices"][0]["text"], "Hello!");
  EXPECT_FALSE(events[0].contains("usage"));
  EXPECT_EQ(gateway.backend.sessions[0].request.stop.max_tokens, 16u);
}

TEST_F(HttpAnswers, ContinuousUsageCountsUp) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    gateway.backend.say(s, "a");
    gateway.backend.answer(s, "b");
  };
  auto r = client.request(
      "POST", k_text_path,
      text_body(R"("stream":true,"stream_options":{"continuous_usage_stats":true})"));
  const auto events = sse_events(r.body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_LE(events[0]["usage"]["completion_tokens"], events[1]["usage"]["completion_tokens"]);
  EXPECT_EQ(events[1]["usage"]["completion_tokens"], gateway.backend.sessions[0].sent[0]);
}

TEST_F(HttpAnswers, EveryChoiceHasItsOwnIndexRoleAndFinish) {
  auto r = client.request("POST", k_chat_path, chat_body(R"("n":3,"stream":true)"));
  std::set<int> roles, finishes;
  for (const auto& event : sse_events(r.body)) {
    const auto& choice = event["choices"][0];
    if (choice["delta"].contains("role")) roles.insert(choice["index"].get<int>());
    if (!choice["finish_reason"].is_null()) finishes.insert(choice["index"].get<int>());
  }
  EXPECT_EQ(roles, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(finishes, roles);
}

TEST_F(HttpAnswers, SeveralPromptsBecomeChoicesInOrder) {
  auto r = client.request("POST", k_text_path, R"({"prompt":["a","b"],"n":2})");
  ASSERT_EQ(r.status, 200) << r.body;
  const Json choices = r.json()["choices"];
  ASSERT_EQ(choices.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(choices[static_cast<size_t>(i)]["index"], i);
  ASSERT_EQ(gateway.backend.sessions.size(), 2u);
  EXPECT_NE(gateway.backend.sessions[0].id, gateway.backend.sessions[1].id);
}

TEST_F(HttpAnswers, ChatLogprobsHaveOpenAisShape) {
  auto r = client.request("POST", k_chat_path, chat_body(R"("logprobs":true,"top_logprobs":2)"));
  const Json content = r.json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), gateway.backend.sessions[0].sent[0]);
  std::string text;
  for (const auto& entry : content) {
    EXPECT_EQ(entry["logprob"], -0.25);
    EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    EXPECT_EQ(entry["top_logprobs"][1]["logprob"], -0.5);
    for (const auto& byte : entry["bytes"]) text += static_cast<char>(byte.get<int>());
    EXPECT_TRUE(entry["token"].is_string());
  }
  EXPECT_EQ(text, "Hello!");
}

TEST_F(HttpAnswers, CompletionLogprobsHaveOffsetsAcrossChunks) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    gateway.backend.say(s, "ab cd");
    gateway.backend.answer(s, " ef");
  };
  auto whole = client.request("POST", k_text_path, text_body(R"("logprobs":1)"));
  const Json one = whole.json()["choices"][0]["logprobs"];
  const size_t count = one["tokens"].size();
  ASSERT_GT(count, 1u);
  EXPECT_EQ(one["token_logprobs"].size(), count);
  EXPECT_EQ(one["top_logprobs"].size(), count);
  EXPECT_EQ(one["text_offset"][0], 0);
  auto streamed = client.request("POST", k_text_path, text_body(R"("logprobs":1,"stream":true)"));
  Json offsets = Json::array();
  for (const auto& event : sse_events(streamed.body)) {
    for (const auto& offset : event["choices"][0]["logprobs"]["text_offset"]) {
      offsets.push_back(offset);
    }
  }
  EXPECT_EQ(offsets, one["text_offset"]);
}

TEST_F(HttpAnswers, TokensThatAreNoCharactersKeepTheirNamesAndTheTextsOffsets) {
  const std::string said = "a\U0001F600b";
  const auto ids = gateway.tiny_tokenizer()->encode(said, {.add_special = false});
  ASSERT_EQ(ids.size(), 6u) << "the emoji must be four tokens of a byte each";
  gateway.backend.on_open = [&](ScriptedSession& s) {
    schema::StreamTokens event;
    for (const int32_t id : ids) {
      event.tokens.push_back({id, TokenLogprob{-0.25f, 1, {{ids[1], -0.5f}, {ids[2], -0.75f}}}});
    }
    event.finish = Finish{FinishReason::stop, -1, -1};
    s.stream->push(std::move(event));
    gateway.backend.end(s, Outcome::done);
  };
  auto r = client.request("POST", k_text_path, text_body(R"("logprobs":2)"));
  const Json choice = r.json()["choices"][0];
  EXPECT_EQ(choice["text"], said);
  const Json logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"],
            (Json{"a", R"(bytes:\xf0)", R"(bytes:\x9f)", R"(bytes:\x98)", R"(bytes:\x80)", "b"}));
  EXPECT_EQ(logprobs["top_logprobs"][0],
            (Json{{R"(bytes:\xf0)", -0.5}, {R"(bytes:\x9f)", -0.75}, {"a", -0.25}}));
  EXPECT_EQ(logprobs["text_offset"], Json::parse("[0,1,1,1,1,2]"));
}

TEST_F(HttpAnswers, ChoicesOfSeveralPromptsHaveSeedsOfTheirOwn) {
  gateway.backend.on_open = [this](ScriptedSession& s) { gateway.backend.answer(s, "ok"); };
  const std::string prompts = R"({"prompt":["same","same","same"],"n":2)";
  auto drawn = client.request("POST", k_text_path, prompts + "}").json()["seed"].get<uint64_t>();
  client.request("POST", k_text_path, prompts + R"(,"seed":)" + std::to_string(drawn) + "}");
  ASSERT_EQ(gateway.backend.sessions.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(gateway.backend.sessions[i].request.sampling.seed, drawn + 2 * (i % 3)) << i;
  }
}

TEST_F(HttpAnswers, EchoPutsThePromptBeforeTheTextAndItsLogprobs) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    gateway.backend.say_prompt(s);
    gateway.backend.answer(s, " you");
  };
  auto r = client.request("POST", k_text_path, text_body(R"("echo":true,"logprobs":0)"));
  const Json choice = r.json()["choices"][0];
  EXPECT_EQ(choice["text"], "hi there you");
  EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
  const size_t prompt = gateway.backend.sessions[0].request.prompt.size();
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), prompt + gateway.backend.sessions[0].sent[0]);
  EXPECT_EQ(choice["logprobs"]["text_offset"][prompt], 8) << "where the prompt's text ends";
}

TEST_F(HttpAnswers, EchoWithZeroTokensShowsThePromptAlone) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    gateway.backend.say_prompt(s);
    gateway.backend.answer(s, "x", FinishReason::length);
  };
  auto r =
      client.request("POST", k_text_path, text_body(R"("echo":true,"logprobs":0,"max_tokens":0)"));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.json()["choices"][0]["text"], "hi there");
  EXPECT_EQ(r.json()["usage"]["completion_tokens"], 0);
  EXPECT_EQ(gateway.backend.sessions[0].request.stop.max_tokens, 1u);
}

TEST_F(HttpAnswers, TokenIdsAndPromptLogprobsComeWhenAsked) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    gateway.backend.say_prompt(s);
    gateway.backend.answer(s, "ok");
  };
  auto r = client.request("POST", k_text_path,
                          R"({"prompt":[5,6,7],"return_token_ids":true,"prompt_logprobs":1})");
  const Json choice = r.json()["choices"][0];
  EXPECT_EQ(choice["prompt_token_ids"], Json::parse("[5,6,7]"));
  EXPECT_EQ(choice["token_ids"].size(), gateway.backend.sessions[0].sent[0]);
  EXPECT_TRUE(choice["prompt_logprobs"][0].is_null());
  EXPECT_EQ(choice["prompt_logprobs"][1]["6"]["logprob"], -0.25);
}

TEST_F(HttpAnswers, StopStringsNeverLeakAndAreNamed) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    gateway.backend.say(s, "one EN");
    gateway.backend.say(s, "D", 0, Finish{FinishReason::stop, -1, 0});
    gateway.backend.end(s, Outcome::done);
  };
  auto r = client.request("POST", k_text_path, text_body(R"("stop":" END","stream":true)"));
  std::string text;
  for (const auto& event : sse_events(r.body)) {
    text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "one");
  EXPECT_EQ(sse_events(r.body).back()["choices"][0]["stop_reason"], " END");
}

TEST_F(HttpAnswers, NeverSplitsACharacter) {
  gateway.backend.on_open = [this](ScriptedSession& s) {
    const auto ids = LoopbackGateway::tiny_tokenizer()->encode("né🙂!", {.add_special = false});
    for (const int32_t id : ids) gateway.backend.say_ids(s, {id});
    gateway.backend.say_ids(s, {}, 0, Finish{FinishReason::length, -1, -1});
    gateway.backend.end(s, Outcome::done);
  };
  auto r = client.request("POST", k_text_path, text_body(R"("stream":true)"));
  std::string text;
  for (const auto& event : sse_events(r.body)) {
    const auto part = event["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(part.find("\xef\xbf\xbd"), std::string::npos);
    text += part;
  }
  EXPECT_EQ(text, "né🙂!");
}

TEST_F(HttpAnswers, ADrawnSeedIsReturnedAndExactInDoubles) {
  auto r = client.request("POST", k_text_path, text_body());
  const auto seed = r.json()["seed"].get<uint64_t>();
  EXPECT_LT(seed, uint64_t{1} << 53);
  EXPECT_EQ(gateway.backend.sessions[0].request.sampling.seed, seed);
}

TEST_F(HttpAnswers, RequestIdAndTraceparentComeBack) {
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  auto r = client.request("GET", "/version", "",
                          "x-request-id: abc-1\r\ntraceparent: " + trace + "\r\n");
  EXPECT_EQ(r.headers["x-request-id"], "abc-1");
  EXPECT_EQ(r.headers["traceparent"], trace);
  r = client.request("GET", "/version", "", "traceparent: 00-a-b-01\r\n");
  EXPECT_FALSE(r.headers.contains("traceparent"));
  EXPECT_EQ(r.json()["version"], "9.9");
  EXPECT_TRUE(client.request("GET", "/version").headers["x-request-id"].starts_with("req-"));
  const std::string longer(limits::request_id_bytes_max + 1, 'x');
  auto replaced = client.request("GET", "/version", "", "x-request-id: " + longer + "\r\n");
  EXPECT_NE(replaced.headers["x-request-id"], longer);
}

TEST_F(HttpAnswers, PagesAnswerGetAndHead) {
  for (const char* path : {"/health", "/ready", "/live", "/version", "/metrics", "/v1/models",
                           "/v1/models/tiny", "/cluster", "/health?x=1"}) {
    EXPECT_EQ(client.request("GET", path).status, 200) << path;
    client.send_request("HEAD", path, "");
    EXPECT_TRUE(client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200")) << path;
  }
  const Json models = client.request("GET", "/v1/models").json();
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][0]["max_model_len"], LoopbackGateway::k_context);
  EXPECT_EQ(models["data"][0]["meta"]["n_vocab"], gateway.tiny_tokenizer()->size());
  EXPECT_NE(client.request("GET", "/metrics").body.find("vllm:num_requests_running"),
            std::string::npos);
}

TEST_F(HttpAnswers, TokenizeAndDetokenizeAreInverse) {
  auto tokens =
      client.request("POST", "/tokenize", R"({"prompt":"a  b","return_token_strs":true})");
  ASSERT_EQ(tokens.status, 200) << tokens.body;
  EXPECT_EQ(tokens.json()["count"], tokens.json()["tokens"].size());
  EXPECT_EQ(tokens.json()["max_model_len"], LoopbackGateway::k_context);
  EXPECT_EQ(tokens.json()["token_strs"].size(), tokens.json()["tokens"].size());
  auto text =
      client.request("POST", "/detokenize", R"({"tokens":)" + tokens.json()["tokens"].dump() + "}");
  EXPECT_NE(text.json()["prompt"].get<std::string>().find("a  b"), std::string::npos);
}

TEST_F(HttpAnswers, TokenizeObeysTheFieldsOfChat) {
  const auto tokens = [&](const std::string& members) {
    return client.request("POST", "/tokenize", chat_body(members)).json()["tokens"];
  };
  client.request("POST", k_chat_path, chat_body());
  EXPECT_EQ(tokens(""), Json(gateway.backend.sessions[0].request.prompt));
  EXPECT_NE(tokens(R"("add_generation_prompt":false)"), tokens(""));
  for (const char* wish : {R"("continue_final_message":true)", R"("chat_template":"x")",
                           R"("tool_choice":"required")", R"("chat_template_kwargs":1)",
                           R"("chat_template_kwargs":{"add_generation_prompt":false})"}) {
    auto r = client.request("POST", "/tokenize", chat_body(wish));
    EXPECT_EQ(r.status, 400) << wish;
    EXPECT_EQ(std::string(wish).find(r.error()["param"].get<std::string>()), 1u) << r.body;
  }
}

TEST_F(HttpAnswers, LongBodiesGetTheAnswersOfShortOnes) {
  const std::string pad = ",\"pad\":\"" + std::string(limits::inline_text_bytes_max, 'x') + "\"}";
  const auto padded = [&](std::string body) { return body.substr(0, body.size() - 1) + pad; };
  for (const char* path : {k_chat_path, k_text_path}) {
    const bool chat = path == std::string(k_chat_path);
    for (const std::string members : {R"("seed":7)", R"("seed":7,"stream":true)", R"("n":0)"}) {
      const std::string body = chat ? chat_body(members) : text_body(members);
      const auto shorter = client.request("POST", path, body);
      const auto longer = client.request("POST", path, padded(body));
      EXPECT_EQ(longer.status, shorter.status) << longer.body;
      // Ids are random.
      EXPECT_EQ(longer.body.size(), shorter.body.size()) << longer.body << shorter.body;
    }
  }
  const std::string tokens = R"({"prompt":"a b"})";
  EXPECT_EQ(client.request("POST", "/tokenize", padded(tokens)).body,
            client.request("POST", "/tokenize", tokens).body);
  EXPECT_EQ(client.request("POST", "/detokenize", padded(R"({"tokens":[999999]})")).status, 400);
}

TEST_F(HttpAnswers, MetricsCountRequestsTokensAndOutcomes) {
  client.request("POST", k_chat_path, chat_body());
  const std::string text = client.request("GET", "/metrics").body;
  for (const char* line :
       {"vllm:request_success_total{finished_reason=\"stop\",model_name=\"tiny\"} 1",
        "outrider_request_outcomes_total{model_name=\"tiny\",outcome=\"done\"} 1",
        "outrider_http_responses_total{model_name=\"tiny\",status=\"200\"} 1",
        "vllm:e2e_request_latency_seconds_count{model_name=\"tiny\"} 1",
        "vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace outrider::gateway
