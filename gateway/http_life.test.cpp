#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "gateway/raw_client.test.hpp"

/// Clients that wait, leave or do not read; gateways that load and drain.
namespace outrider::gateway {
namespace {

using namespace testing_support;
using Outcome = schema::StreamDone::Outcome;

constexpr const char* k_stream = R"({"prompt":"x","stream":true})";
constexpr const char* k_whole = R"({"prompt":"x"})";

GatewayOptions quick_pings() {
  GatewayOptions options;
  options.http.ping_interval_ms = 10;
  options.http.watch_interval_ms = 10;
  options.drain_timeout_ms = 5'000;
  return options;
}

class HttpLife : public testing::Test {
 protected:
  HttpLife() : gateway(quick_pings()), client(gateway) {}

  ScriptedSession& opened(size_t index = 0) {
    gateway.run_until([&] { return gateway.backend.sessions.size() > index; });
    return gateway.backend.sessions[index];
  }
  LoopbackGateway gateway;
  RawClient client;
};

TEST_F(HttpLife, AQueuedStreamIsPinged) {
  client.send_request("POST", k_text_path, k_stream);
  client.read_until(": ping\n\n");
  client.read_until(": ping\n\n");
  gateway.backend.answer(opened(), "late");
  EXPECT_NE(client.read_until("[DONE]\n\n").find("late"), std::string::npos);
}

TEST_F(HttpLife, TokensArriveAsTheyAreMade) {
  client.send_request("POST", k_text_path, k_stream);
  gateway.backend.say(opened(), "first");
  EXPECT_NE(client.read_until("first").find("text/event-stream"), std::string::npos);
  gateway.backend.answer(opened(), " second");
  client.read_until("[DONE]\n\n");
}

TEST_F(HttpLife, AClientThatLeavesCancelsItsStream) {
  client.send_request("POST", k_text_path, k_stream);
  gateway.backend.say(opened(), "first");
  client.read_until("first");
  client.close();
  gateway.run_until([&] { return opened().cancelled; });
  EXPECT_EQ(gateway.gateway->open_requests(), 0u);
}

TEST_F(HttpLife, AClientThatLeavesCancelsItsWaitingAnswer) {
  client.send_request("POST", k_text_path, k_whole);
  opened();
  client.close();
  gateway.run_until([&] { return opened().cancelled; });
  EXPECT_EQ(gateway.gateway->open_requests(), 0u);
}

TEST_F(HttpLife, AClientThatLeavesIsNoticedWhileItsBackendTalksOn) {
  for (const char* body : {k_whole, k_stream}) {
    const size_t index = gateway.backend.sessions.size();
    RawClient leaver(gateway);
    leaver.send_request("POST", k_text_path, body);
    auto& session = opened(index);
    leaver.close();
    uint32_t turns = 0;
    gateway.run_until([&] {
      // Nothing that a stream would write: a failing write is not what tells.
      if (session.stream) gateway.backend.say_ids(session, {});
      return session.cancelled || ++turns > 5'000;
    });
    EXPECT_TRUE(session.cancelled) << body;
  }
}

TEST_F(HttpLife, ASlowReaderFillsItsOwnChannelAndNoMore) {
  client.send_request("POST", k_text_path, R"({"prompt":"x","stream":true,"logprobs":20})");
  auto& session = opened();
  using StreamLevel = schema::ClientStream::Level;
  StreamLevel level = StreamLevel::flowing;
  uint64_t sent = 0;
  while (level == StreamLevel::flowing) {
    level = gateway.backend.say(session, "some words of text");
    ++sent;
    gateway.run_until([] { return true; });
    ASSERT_LT(sent, 100'000u);
    if (sent % 8 == 0)
      gateway.io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(gateway.io.waitScope);
  }
  EXPECT_EQ(level, StreamLevel::full);
  EXPECT_EQ(session.resumed, 0u);
  // Another client is served meanwhile.
  RawClient other(gateway);
  EXPECT_EQ(other.request("GET", "/live").status, 200);
  // The reader comes back: the session is told, and every token arrives.
  client.read_until("\r\n\r\n");
  std::string text;
  while (session.resumed == 0) text += client.read_chunk();
  gateway.backend.answer(session, "END");
  text += client.read_chunks();
  uint64_t tokens = 0;
  for (const auto& event : sse_events(text)) {
    tokens += event["choices"][0]["logprobs"]["tokens"].size();
  }
  EXPECT_EQ(tokens, session.sent[0]);
}

TEST(HttpGateway, GivesUpReadersThatTakeNothing) {
  GatewayOptions options = quick_pings();
  options.http.write_timeout_ms = 50;
  LoopbackGateway strict(options);
  RawClient stuck(strict);
  stuck.send_request("POST", k_text_path, R"({"prompt":"x","stream":true,"logprobs":20})");
  strict.run_until([&] { return !strict.backend.sessions.empty(); });
  auto& session = strict.backend.sessions[0];
  while (!session.cancelled) {
    if (session.stream) strict.backend.say(session, "some words of text");
    strict.run_until([] { return true; });
    strict.io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(strict.io.waitScope);
  }
}

TEST(HttpGateway, GivesUpBodiesThatTrickleIn) {
  GatewayOptions options;
  options.http.body_total_timeout_ms = 50;
  LoopbackGateway strict(options);
  RawClient slow(strict);
  slow.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
      "application/json\r\nContent-Length: 100000\r\n\r\n");
  uint32_t turns = 0;
  strict.run_until([&] {
    slow.send(" ");
    return strict.metrics.http_responses(408).Value() > 0 || ++turns > 10'000;
  });
  ASSERT_LE(turns, 10'000u);
  EXPECT_EQ(slow.read_response().status, 408);
}

TEST(HttpGateway, TakesClockIdsAndSeedsFromItsParts) {
  LoopbackGateway fixed({}, true, [](Gateway::Parts& parts) {
    parts.wall_time = [] { return UnixTime(std::chrono::seconds(1'700'000'000)); };
    parts.random_bits = [] { return 0x0123456789abcdefu; };
  });
  fixed.backend.on_open = [&](ScriptedSession& s) { fixed.backend.answer(s, "ok"); };
  const Json body = RawClient(fixed).request("POST", k_text_path, k_whole).json();
  EXPECT_EQ(body["created"], 1'700'000'000);
  EXPECT_EQ(body["id"], "cmpl-fedcba9876543210fedcba9876543210");
  EXPECT_EQ(body["seed"], 0x0123456789abcdefu >> 12);
  EXPECT_EQ(fixed.backend.sessions[0].id, 0x0123456789abcdefu >> 1);
}

TEST(HttpGateway, CountsDeadlinesMetricsAndTheLogFromTheHeadersOn) {
  using std::chrono::milliseconds;
  ManualClock clock;
  std::ostringstream lines;
  LoopbackGateway timed(
      {}, true,
      [&](Gateway::Parts& parts) {
        parts.log = std::make_shared<spdlog::logger>(
            "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
      },
      &clock);
  timed.backend.on_open = [&](ScriptedSession& s) {
    clock.advance(milliseconds(5));
    timed.backend.answer(s, "ok");
  };
  const auto post = [&](const std::string& body, Duration upload) {
    RawClient client(timed);
    client.send(
        "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\nExpect: 100-continue\r\n\r\n");
    client.read_until("100 Continue\r\n\r\n");
    clock.advance(upload);
    client.send(body);
    return client.read_response();
  };
  const std::string body = R"({"prompt":"x","deadline_ms":100})";
  EXPECT_EQ(post(body, milliseconds(60)).status, 200);
  EXPECT_EQ(timed.backend.sessions[0].request.deadline_ms, 40u);
  timed.run_until([&] { return lines.str().find("total_ms=") != std::string::npos; });
  EXPECT_NE(lines.str().find("ttft_ms=65.0"), std::string::npos) << lines.str();
  EXPECT_NE(lines.str().find("total_ms=65.0"), std::string::npos) << lines.str();
  const std::string cached = "cached_tokens=" + std::to_string(ScriptedBackend::k_cached);
  EXPECT_NE(lines.str().find(cached), std::string::npos) << lines.str();
  const std::string metrics = timed.metrics.render();
  for (const char* name :
       {"vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds"}) {
    const std::string sum = std::string(name) + "_sum{model_name=\"tiny\"} 0.065\n";
    EXPECT_NE(metrics.find(sum), std::string::npos) << metrics;
  }
  auto late = post(body, milliseconds(100));
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(late.error()["param"], "deadline_ms");
  EXPECT_EQ(timed.backend.sessions.size(), 1u);
}

TEST(HttpGateway, LogsPromptsOnlyWhereItIsToldTo) {
  for (const bool wanted : {false, true}) {
    std::ostringstream lines;
    GatewayOptions options;
    options.log_prompts = wanted;
    LoopbackGateway talkative(options, true, [&](Gateway::Parts& parts) {
      parts.log = std::make_shared<spdlog::logger>(
          "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
    });
    talkative.backend.on_open = [&](ScriptedSession& s) { talkative.backend.answer(s, "ok"); };
    RawClient(talkative).request("POST", k_text_path, R"({"prompt":"my secret\nplan"})");
    EXPECT_NE(lines.str().find("status=200"), std::string::npos) << lines.str();
    EXPECT_EQ(lines.str().find(R"(my secret\nplan)") != std::string::npos, wanted) << lines.str();
  }
}

TEST(HttpGateway, Says503UntilTheModelIsThere) {
  LoopbackGateway loading({}, false);
  RawClient c(loading);
  EXPECT_EQ(c.request("GET", "/live").status, 200);
  for (const char* path : {"/health", "/ready"}) {
    auto r = c.request("GET", path);
    EXPECT_EQ(r.status, 503);
    EXPECT_EQ(r.json()["status"], "loading");
  }
  auto r = c.request("POST", k_text_path, k_whole);
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers["retry-after"], "1");
  EXPECT_EQ(c.request("POST", "/tokenize", k_whole).status, 503);
  EXPECT_EQ(c.request("GET", "/v1/models").json()["data"].size(), 0u);
  loading.serve();
  EXPECT_EQ(c.request("GET", "/health").status, 200);
}

TEST(HttpGateway, SaysWhatItWaitsForBeforeThereIsAModel) {
  LoopbackGateway waiting({}, false, [](Gateway::Parts& parts) {
    parts.not_ready = {"no target", "no target has joined yet"};
  });
  RawClient c(waiting);
  EXPECT_EQ(c.request("GET", "/ready").json()["status"], "no target");
  EXPECT_NE(c.request("POST", k_text_path, k_whole).body.find("no target has joined yet"),
            std::string::npos);
}

TEST_F(HttpLife, DrainRefusesNewRequestsAndFinishesAdmittedOnes) {
  client.send_request("POST", k_text_path, k_stream);
  gateway.backend.say(opened(), "first");
  client.read_until("first");
  bool drained = false;
  auto drain =
      gateway.gateway->drain().then([&](bool all) { drained = all; }).eagerlyEvaluate(nullptr);
  EXPECT_EQ(RawClient(gateway).request("GET", "/health").status, 503);
  EXPECT_EQ(RawClient(gateway).request("GET", "/live").status, 200);
  EXPECT_EQ(RawClient(gateway).request("POST", k_text_path, k_whole).status, 503);
  EXPECT_FALSE(drained);
  gateway.backend.answer(opened(), " second");
  EXPECT_NE(client.read_until("[DONE]\n\n").find("second"), std::string::npos);
  gateway.run_until([&] { return drained; });
}

TEST(HttpGateway, DrainsForABoundedTime) {
  GatewayOptions options = quick_pings();
  options.drain_timeout_ms = 30;
  LoopbackGateway stuck(options);
  RawClient c(stuck);
  c.send_request("POST", k_text_path, k_stream);
  stuck.run_until([&] { return !stuck.backend.sessions.empty(); });
  EXPECT_FALSE(stuck.gateway->drain().wait(stuck.io.waitScope));
  EXPECT_EQ(stuck.gateway->open_requests(), 1u);
  stuck.gateway.reset();
  EXPECT_TRUE(stuck.backend.sessions[0].cancelled);
}

TEST(HttpGateway, AForcedStopTellsEachClientOnceAndLogsIt) {
  std::ostringstream lines;
  GatewayOptions options = quick_pings();
  options.drain_timeout_ms = 1;
  LoopbackGateway stopped(options, true, [&](Gateway::Parts& parts) {
    parts.log = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
  });
  RawClient streams(stopped), waits(stopped), idles(stopped);
  EXPECT_EQ(idles.request("GET", "/live").status, 200);
  streams.send_request("POST", k_text_path, k_stream);
  stopped.run_until([&] { return stopped.backend.sessions.size() == 1; });
  stopped.backend.say(stopped.backend.sessions[0], "first");
  streams.read_until("first");
  waits.send_request("POST", k_text_path, k_whole);
  stopped.run_until([&] { return stopped.backend.sessions.size() == 2; });
  EXPECT_FALSE(stopped.gateway->drain().wait(stopped.io.waitScope));
  stopped.gateway->stop().wait(stopped.io.waitScope);
  EXPECT_EQ(stopped.gateway->open_requests(), 0u);

  const std::string rest = streams.read_all();
  EXPECT_NE(rest.find(R"(data: {"error":{"message":"the server is stopping")"), rest.npos) << rest;
  EXPECT_NE(rest.find(R"("code":503)"), rest.npos) << rest;
  EXPECT_EQ(rest.find("[DONE]"), rest.npos) << rest;
  EXPECT_TRUE(rest.ends_with("\r\n0\r\n\r\n")) << rest;
  auto whole = waits.read_response();
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.headers["retry-after"], "1");
  EXPECT_EQ(whole.headers["connection"], "close");
  EXPECT_EQ(waits.read_all(), "");
  EXPECT_EQ(idles.read_all(), "");
  for (const auto& session : stopped.backend.sessions) EXPECT_TRUE(session.cancelled);
  EXPECT_EQ(lines.str().find("status=499"), std::string::npos) << lines.str();
  EXPECT_NE(lines.str().find("status=503"), std::string::npos) << lines.str();
  EXPECT_EQ(stopped.metrics.requests("tiny").outcomes.of("failed").Value(), 2);
}

TEST(HttpGateway, AForcedStopDoesNotWaitForReadersThatTakeNothing) {
  GatewayOptions options = quick_pings();
  options.drain_timeout_ms = 1;
  options.stop_flush_ms = 50;
  LoopbackGateway stopped(options);
  RawClient stuck(stopped);
  stuck.send_request("POST", k_text_path, R"({"prompt":"x","stream":true,"logprobs":20})");
  stopped.run_until([&] { return !stopped.backend.sessions.empty(); });
  auto& session = stopped.backend.sessions[0];
  uint32_t resumed = 0;
  do {
    resumed = session.resumed;
    while (stopped.backend.say(session, "some words of text") ==
           schema::ClientStream::Level::flowing) {
    }
    // The gateway goes on as long as the socket takes what it writes.
    for (int round = 0; round < 20 && session.resumed == resumed; ++round) {
      stopped.io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(stopped.io.waitScope);
    }
  } while (session.resumed != resumed);
  EXPECT_FALSE(stopped.gateway->drain().wait(stopped.io.waitScope));
  stopped.gateway->stop().wait(stopped.io.waitScope);
  EXPECT_EQ(stopped.gateway->open_requests(), 1u);
  stopped.gateway.reset();
  EXPECT_TRUE(session.cancelled);
}

}  // namespace
}  // namespace outrider::gateway
