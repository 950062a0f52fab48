#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "gateway/raw_client.test.hpp"

/// What clients read when something is wrong: over real loopback sockets.
namespace outrider::gateway {
namespace {

using namespace testing_support;
using Outcome = schema::StreamDone::Outcome;

#define k_json "Content-Type: application/json\r\n"

constexpr uint32_t k_connections = 8;

GatewayOptions few_connections() {
  GatewayOptions options;
  options.http.connections_max = k_connections;
  return options;
}

/// Only for what waits for it: a busy machine makes a quick client slow.
GatewayOptions impatient() {
  GatewayOptions options;
  options.http.header_timeout_ms = 200;
  options.http.body_timeout_ms = 200;
  return options;
}

class HttpRefusals : public testing::Test {
 protected:
  HttpRefusals() : gateway(few_connections()), client(gateway) {}
  LoopbackGateway gateway;
  RawClient client;
};

TEST_F(HttpRefusals, ErrorsHaveTheFourFieldsAndTheStatusAsCode) {
  auto r =
      client.request("POST", k_chat_path, R"({"messages":[{"role":"user","content":"x"}],"n":0})");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.error()["type"], "invalid_request_error");
  EXPECT_EQ(r.error()["param"], "n");
  EXPECT_EQ(r.error()["code"], 400);
  EXPECT_TRUE(r.error()["message"].is_string());
  EXPECT_TRUE(client.request("POST", k_chat_path, "{").error()["param"].is_null());
}

TEST_F(HttpRefusals, WrongPathsMethodsAndTypesAreNamed) {
  EXPECT_EQ(client.request("GET", "/nothing").status, 404);
  EXPECT_EQ(client.request("POST", "/nothing", "{}").status, 404);
  EXPECT_EQ(client.request("GET", "/v1/models/other").status, 404);
  auto get = client.request("GET", k_chat_path);
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.headers["allow"], "POST");
  EXPECT_EQ(client.request("POST", "/health", "{}").status, 405);
  EXPECT_EQ(client.request("DELETE", "/v1/models").status, 405);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.read_response().status, 415);
}

TEST_F(HttpRefusals, AnUnknownModelIsA404) {
  auto r = client.request("POST", k_text_path, R"({"prompt":"x","model":"gpt-9"})");
  EXPECT_EQ(r.status, 404);
  EXPECT_EQ(r.error()["param"], "model");
  EXPECT_EQ(r.error()["type"], "invalid_request_error");
  EXPECT_EQ(r.error()["code"], "model_not_found");
}

TEST(HttpRefusalLog, EachRefusalHasOneLineThatSaysWhereAndWhyButNotWhatWasSent) {
  std::ostringstream lines;
  LoopbackGateway gateway({}, true, [&](Gateway::Parts& parts) {
    parts.log = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
  });
  RawClient client(gateway);
  const auto logged = [&] { return std::exchange(lines, std::ostringstream()).str(); };
  const auto count = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"GET", "/nothing?secret", ""},
      {"GET", k_chat_path, ""},
      {"POST", "/tokenize", R"({"prompt":["secret","x"]})"},
      {"POST", "/tokenize", "secret"},
      {"POST", k_text_path, R"({"prompt":"secret","n":0})"},
      {"POST", k_text_path, R"({"prompt":"x","model":"secret"})"}};
  for (const auto& [method, path, body] : cases) {
    const int status = client.request(method, path, body).status;
    ASSERT_GE(status, 400) << path << " " << body;            // else no line ever comes
    gateway.run_until([&] { return !lines.str().empty(); });  // a generation's line comes last
    const std::string text = logged();
    EXPECT_EQ(count(text), 1) << text;
    EXPECT_NE(text.find("status="), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(status)), std::string::npos) << text;
    EXPECT_EQ(text.find("secret"), std::string::npos) << text;
    if (body.find("\"n\"") != body.npos) {
      EXPECT_NE(text.find("param=n"), std::string::npos) << text;
    }
  }
  EXPECT_EQ(client.request("POST", "/health", "{}").status, 405);
  EXPECT_EQ(logged(), "");
}

TEST(HttpRefusalLog, HasWhatComesTooEarlyButNotWhatProbesAreTold) {
  std::ostringstream lines;
  LoopbackGateway loading({}, false, [&](Gateway::Parts& parts) {
    parts.log = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
  });
  RawClient client(loading);
  EXPECT_EQ(client.request("GET", "/ready").status, 503);
  EXPECT_EQ(lines.str(), "");
  EXPECT_EQ(client.request("POST", k_text_path, k_body, "x-request-id: mine\r\n").status, 503);
  for (const char* part :
       {"refused", "rid=mine", "method=POST", "path=/v1/completions", "status=503", "total_ms="}) {
    EXPECT_NE(lines.str().find(part), std::string::npos) << lines.str();
  }
}

TEST_F(HttpRefusals, AModelThatIsNotThereIsMissingInOpenAIsWords) {
  auto r = client.request("GET", "/v1/models/org%2Fgpt%209");
  EXPECT_EQ(r.status, 404);
  EXPECT_EQ(r.body, R"({"error":{"message":"The model 'org/gpt 9' does not exist",)"
                    R"("type":"invalid_request_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(client.request("GET", "/v1/models/t%69ny").status, 200);
  EXPECT_EQ(client.request("DELETE", "/v1/models/gpt-9").status, 405);
  auto tokens = client.request("POST", "/tokenize", R"({"prompt":"x","model":"gpt-9"})");
  EXPECT_EQ(tokens.status, 404);
  EXPECT_EQ(tokens.error()["message"], "the model gpt-9 is not served here");
}

TEST_F(HttpRefusals, TokenIdsOutsideTheVocabularyAreNamedByTheirPlace) {
  const auto refused = [&](const char* path, const char* body) {
    const auto r = client.request("POST", path, body);
    EXPECT_EQ(r.status, 400) << body;
    const std::string param = r.error()["param"];
    EXPECT_EQ(r.error()["message"].get<std::string>().find(param + " "), 0u) << r.body;
    return param;
  };
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[1,2,999999]})"), "prompt[2]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[1,-2]})"), "prompt[1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[1,"2"]})"), "prompt[1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[[1],[2,999999]]})"), "prompt[1][1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[[2,999999]]})"), "prompt[0][1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[[1],[2,2.5]]})"), "prompt[1][1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":[[1],[]]})"), "prompt[1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":"x","stop_token_ids":[3,999999]})"),
            "stop_token_ids[1]");
  EXPECT_EQ(refused(k_text_path, R"({"prompt":"x","logit_bias":{"999999":1}})"),
            "logit_bias.999999");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[1,999999]})"), "tokens[1]");
}

TEST_F(HttpRefusals, WhatTheModelCannotHoldNamesBothNumbers) {
  std::string words;
  for (int i = 0; i < 600; ++i) words += "word ";
  auto longer = client.request("POST", k_text_path, R"({"prompt":")" + words + R"("})");
  EXPECT_EQ(longer.status, 400);
  EXPECT_NE(longer.error()["message"].get<std::string>().find("256"), std::string::npos);
  EXPECT_EQ(longer.error()["param"], "prompt");
  auto tokens = client.request("POST", k_text_path, R"({"prompt":"x","max_tokens":5000})");
  EXPECT_EQ(tokens.error()["param"], "max_tokens");
  EXPECT_NE(tokens.error()["message"].get<std::string>().find("5000"), std::string::npos);
  EXPECT_EQ(client.request("POST", "/detokenize", R"({"tokens":"x"})").status, 400);
  EXPECT_EQ(client.request("POST", "/tokenize", "{}").status, 400);
}

TEST_F(HttpRefusals, BackendErrorsBecomeStatusesWithRetryAfter) {
  const struct {
    ErrorCode code;
    int status;
    const char* retry;
  } cases[] = {{ErrorCode::overloaded, 429, "3"},       {ErrorCode::unavailable, 503, "3"},
               {ErrorCode::deadline_exceeded, 504, ""}, {ErrorCode::internal, 500, ""},
               {ErrorCode::invalid_argument, 400, ""},  {ErrorCode::cancelled, 499, ""}};
  for (const char* stream : {"false", "true"}) {
    for (const auto& c : cases) {
      gateway.backend.on_open = [&](ScriptedSession& s) {
        gateway.backend.end(s, Outcome::rejected, fail(c.code, "because"), *c.retry ? 2'500u : 0u);
      };
      auto r = client.request("POST", k_text_path,
                              std::string(R"({"prompt":"x","stream":)") + stream + "}");
      EXPECT_EQ(r.status, c.status) << stream;
      EXPECT_EQ(r.headers["retry-after"], c.retry);
      EXPECT_EQ(r.error()["code"], c.status);
    }
  }
  const std::string metrics = gateway.metrics.render();
  const std::string outcomes = "outrider_request_outcomes_total{model_name=\"tiny\",outcome=";
  EXPECT_NE(metrics.find(outcomes + "\"deadline_exceeded\"} 2\n"), metrics.npos) << metrics;
  EXPECT_NE(metrics.find(outcomes + "\"rejected\"} 10\n"), metrics.npos) << metrics;
}

TEST_F(HttpRefusals, AnErrorInMidStreamIsAnEventAndTheEnd) {
  gateway.backend.on_open = [&](ScriptedSession& s) { gateway.backend.say(s, "some"); };
  client.send_request("POST", k_text_path, R"({"prompt":"x","stream":true})");
  client.read_until("some");
  gateway.backend.end(gateway.backend.sessions[0], Outcome::failed,
                      fail(ErrorCode::internal, "the engine broke"));
  const std::string rest = client.read_until("\r\n0\r\n\r\n");
  EXPECT_NE(rest.find(R"(data: {"error":{"message":"the engine broke")"), std::string::npos)
      << rest;
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
}

TEST_F(HttpRefusals, ATokenOutsideTheVocabularyFailsTheRequestOnly) {
  TokenOut alternative{1, TokenLogprob{-0.25f, 1, {{1'000'000, -0.25f}}}};
  for (const TokenOut& token : {TokenOut{1'000'000, {}}, TokenOut{-1, {}}, alternative}) {
    for (const bool of_prompt : {false, true}) {
      gateway.backend.on_open = [&](ScriptedSession& s) {
        schema::StreamTokens event;
        (of_prompt ? event.prompt_tokens : event.tokens) = {token};
        s.stream->push(std::move(event));
      };
      EXPECT_EQ(client.request("POST", k_text_path, k_body).status, 500);
      EXPECT_TRUE(gateway.backend.sessions.back().cancelled);
    }
  }
  EXPECT_EQ(client.request("GET", "/live").status, 200);
}

TEST(HttpKeys, GuardAllButTheProbes) {
  const std::string path = testing::TempDir() + "outrider_keys";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("team:secret-good\n", file);
  std::fclose(file);
  GatewayOptions options;
  options.api_key_file = path;
  LoopbackGateway guarded(options);
  guarded.backend.on_open = [&](ScriptedSession& s) { guarded.backend.answer(s, "ok"); };
  RawClient c(guarded);
  for (const char* open : {"/health", "/live", "/ready", "/version", "/metrics"}) {
    EXPECT_EQ(c.request("GET", open).status, 200) << open;
  }
  for (const char* closed : {"/v1/models", "/cluster", "/nothing"}) {
    EXPECT_EQ(c.request("GET", closed).status, 401) << closed;
  }
  EXPECT_EQ(c.request("POST", k_text_path, k_body).error()["type"], "authentication_error");
  const std::string wrong = "Authorization: Bearer sk-bad\r\n";
  EXPECT_EQ(c.request("POST", k_text_path, k_body, wrong).status, 401);
  EXPECT_EQ(c.request("GET", "/metrics", "", wrong).status, 401);
  EXPECT_EQ(c.request("GET", "/live", "", wrong).status, 200);
  EXPECT_EQ(c.request("POST", k_text_path, k_body, "Authorization: Bearer secret-good\r\n").status,
            200);
  EXPECT_EQ(guarded.backend.sessions.back().request.tenant, "team");
  std::remove(path.c_str());
}

TEST(HttpKeys, ShowATenantItsOwnFiguresAndTheAdminAll) {
  const std::string path = testing::TempDir() + "outrider_keys";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("ann:secret-ann\nbob:secret-bob\nops:secret-ops\n", file);
  std::fclose(file);
  const auto adjust = [](Gateway::Parts& parts) {
    parts.cluster_json = [](const Viewer& viewer) {
      return std::string(viewer.sees("ann") ? "ann " : "") + (viewer.sees("bob") ? "bob" : "");
    };
    parts.before_metrics = [&metrics = parts.metrics] {
      for (const char* name : {"ann", "bob"}) metrics.store().tenant_bytes.of(name).Set(1);
    };
  };
  using Shown = std::pair<std::string, std::string>;
  const auto shown = [](LoopbackGateway& gateway, const std::string& key) {
    const std::string header = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
    RawClient c(gateway);
    const std::string metrics = c.request("GET", "/metrics", "", header).body;
    const auto has = [&](const char* name) {
      return metrics.find("tenant=\"" + std::string(name) + "\"") != std::string::npos;
    };
    const bool has_sums = metrics.find("vllm:num_requests_running") != std::string::npos;
    EXPECT_EQ(has_sums, key != "secret-eve");
    return Shown(c.request("GET", "/cluster", "", header).body,
                 std::string(has("ann") ? "ann " : "") + (has("bob") ? "bob" : ""));
  };
  GatewayOptions options;
  {
    LoopbackGateway without_keys(options, true, adjust);
    EXPECT_EQ(shown(without_keys, ""), Shown("ann bob", "ann bob"));
  }
  options.api_key_file = path;
  options.admin_tenant = "ops";
  LoopbackGateway with_keys(options, true, adjust);
  EXPECT_EQ(shown(with_keys, "secret-ops"), Shown("ann bob", "ann bob"));
  EXPECT_EQ(shown(with_keys, "secret-ann"), Shown("ann ", "ann "));
  EXPECT_EQ(shown(with_keys, "secret-bob"), Shown("bob", "bob"));
  for (const char* no_key : {"", "secret-eve"}) EXPECT_EQ(shown(with_keys, no_key).second, "");
  std::remove(path.c_str());
}

TEST_F(HttpRefusals, BodiesOverTheLimitAre413Announced) {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json
              "Content-Length: 104857600\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413);
}

TEST_F(HttpRefusals, BodiesOverTheLimitAre413Chunked) {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json
              "Transfer-Encoding: chunked\r\n\r\n");
  const std::string part = "100000\r\n" + std::string(0x100000, ' ') + "\r\n";
  for (int i = 0; i < 9; ++i) client.send(part);
  EXPECT_EQ(client.read_response().status, 413);
}

TEST(HttpBodies, OfAllConnectionsTakeABoundedNumberOfBytes) {
  GatewayOptions options;
  options.http.bodies_bytes_max = 1'000;
  LoopbackGateway bounded(options);
  bounded.backend.on_open = [&](ScriptedSession& s) { bounded.backend.answer(s, "ok"); };
  const auto body = [](size_t bytes) {
    std::string text = R"({"prompt":"x","pad":")";
    return text + std::string(bytes - text.size() - 2, 'x') + "\"}";
  };
  RawClient client(bounded);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.request("POST", k_text_path, body(900)).status, 200) << "given back";
  }
  auto over = client.request("POST", k_text_path, body(1'001));
  EXPECT_EQ(over.status, 429);
  EXPECT_EQ(over.headers["retry-after"], "1");

  RawClient slow(bounded);
  slow.send("POST /v1/completions HTTP/1.1\r\n" k_json "Content-Length: 900\r\n\r\n" +
            body(900).substr(0, 800));
  int status = 200;
  for (int turns = 0; status == 200 && turns < 5'000; ++turns) {  // until the part is read
    status = RawClient(bounded).request("POST", k_text_path, body(300)).status;
  }
  EXPECT_EQ(status, 429);
  slow.send(body(900).substr(800));
  EXPECT_EQ(slow.read_response().status, 200);
  EXPECT_EQ(RawClient(bounded).request("POST", k_text_path, body(300)).status, 200);
}

TEST(HttpTimeouts, EndSlowHeadersAndSlowBodies) {
  LoopbackGateway gateway(impatient());
  RawClient client(gateway);
  client.send("POST /v1/comp");
  EXPECT_EQ(client.read_all(), "");  // KJ closes, without an answer
  RawClient second(gateway);
  second.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json "Content-Length: 10\r\n\r\n{");
  EXPECT_EQ(second.read_response().status, 408);
}

TEST_F(HttpRefusals, HeadersOverTheLimitAreRefused) {
  auto r = client.request("GET", "/live", "", "x-big: " + std::string(40'000, 'a') + "\r\n");
  EXPECT_EQ(r.status, 431);
}

TEST(HttpTimeouts, GarbageIsAnsweredOrEndsAndTheServerGoesOn) {
  LoopbackGateway gateway(impatient());
  const std::string cases[] = {
      "\r\n\r\n",
      "GET\r\n\r\n",
      "GET /\r\n\r\n",
      "FOO / HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
      "GET / HTTP/1.1\r\nbad header\r\n\r\n",
      "GET / HTTP/1.1\r\n: empty\r\n\r\n",
      "\x16\x03\x01\x02\x01\x01\xfc\x03\x03\r\n\r\n",
      std::string("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", 28),
      std::string(200'000, 'A'),
      std::string(200'000, '\0'),
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json "Content-Length: x\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json "Content-Length: -1\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json
      "Content-Length: 99999999999999999999\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json "Transfer-Encoding: gzip\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json
      "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json
      "Transfer-Encoding: chunked\r\n\r\n"
      "fffffffffffffffff\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
      "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
  };
  for (const auto& bytes : cases) {
    RawClient c(gateway);
    [[maybe_unused]] auto closed = kj::runCatchingExceptions([&] { c.send(bytes); });
    const int status = c.read_response().status;
    EXPECT_TRUE(status == 0 || (status >= 400 && status < 500))
        << status << " " << bytes.substr(0, 60);
  }
  EXPECT_EQ(RawClient(gateway).request("GET", "/live").status, 200);
}

TEST_F(HttpRefusals, WrongFramingIsNamedWithoutTheServersOwnWords) {
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" k_json
              "Transfer-Encoding: chunked\r\n\r\n"
              "zz-quoted\r\n\r\n");
  const auto r = client.read_response();
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.error()["message"], "the body's Transfer-Encoding or Content-Length is wrong");
}

TEST_F(HttpRefusals, ConnectionsOverTheBoundAreClosedAtOnce) {
  std::vector<std::unique_ptr<RawClient>> open;
  while (open.size() < k_connections - 1) {
    open.push_back(std::make_unique<RawClient>(gateway));
    ASSERT_EQ(open.back()->request("GET", "/live").status, 200);
  }
  ASSERT_EQ(client.request("GET", "/live").status, 200);
  RawClient extra(gateway);
  EXPECT_EQ(extra.read_all(), "");
  open.pop_back();
  gateway.run_until([&] { return gateway.metrics.connections_open.Value() < k_connections; });
  EXPECT_EQ(RawClient(gateway).request("GET", "/live").status, 200);
}

}  // namespace
}  // namespace outrider::gateway
