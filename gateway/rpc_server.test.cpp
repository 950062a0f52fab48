#include "gateway/rpc_server.hpp"

#include <capnp/rpc-twoparty.h>
#include <capnp/schema.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gateway/raw_client.test.hpp"
#include "gateway/request_parser.hpp"
#include "schema/outrider.capnp.h"

namespace outrider::gateway {
namespace {

using namespace testing_support;
using Outcome = schema::StreamDone::Outcome;

/// Keeps what the server sends; may refuse to return from a push.
class Sink final : public rpc::TokenSink::Server {
 public:
  struct Seen {
    std::string text;
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    uint32_t finishes = 0;
    uint32_t dones = 0;
    uint32_t prompts_in_done = 0;
    uint32_t pushes = 0;
    bool stuck = false;
  };
  explicit Sink(Seen& seen) : seen_(seen) {}

  kj::Promise<void> push(PushContext context) override {
    const auto chunk = context.getParams().getChunk();
    ++seen_.pushes;
    seen_.text += chunk.getText().cStr();
    for (auto token : chunk.getTokens()) {
      seen_.ids.push_back(token.getId());
      if (token.getHasLogprob()) seen_.logprobs.push_back(token.getLogprob());
    }
    if (chunk.getFinishReason() != rpc::FinishReason::NONE) ++seen_.finishes;
    if (seen_.stuck) return kj::NEVER_DONE;
    return kj::READY_NOW;
  }
  kj::Promise<void> done(DoneContext context) override {
    ++seen_.dones;
    seen_.prompts_in_done += context.getParams().getResult().getPrompts().size();
    return kj::READY_NOW;
  }

 private:
  Seen& seen_;
};

class RpcClient {
 public:
  explicit RpcClient(LoopbackGateway& gateway, const char* key = "")
      : wait(gateway.io.waitScope),
        stream(gateway.io.provider->getNetwork()
                   .parseAddress("127.0.0.1", gateway.gateway->rpc_port())
                   .wait(wait)
                   ->connect()
                   .wait(wait)),
        client(*stream),
        service(open(key)) {}

  rpc::Outrider::Client open(const char* key) {
    auto request = client.bootstrap().castAs<rpc::Login>().openRequest();
    request.setApiKey(key);
    return request.send().getService();
  }
  auto generate_request(const char* prompt, Sink::Seen& seen) {
    auto request = service.generateRequest();
    request.initRequest().getPrompt().setText(prompt);
    request.setSink(kj::heap<Sink>(seen));
    return request;
  }

  kj::WaitScope& wait;
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyClient client;
  rpc::Outrider::Client service;
};

/// The error's JSON, from an exception's text.
Json error_of(const kj::Exception& exception) {
  const std::string text = exception.getDescription().cStr();
  return Json::parse(text.substr(text.find('{')), nullptr, false).value("error", Json());
}

class RpcServerTest : public testing::Test {
 protected:
  RpcServerTest() {
    gateway.backend.on_open = [this](ScriptedSession& s) { gateway.backend.answer(s, "Hello!"); };
  }
  template <class Promise>
  Json failure(Promise promise) {
    Json error;
    auto caught = kj::runCatchingExceptions([&] { promise.wait(gateway.io.waitScope); });
    KJ_IF_MAYBE (exception, caught) {
      error = error_of(*exception);
    }
    EXPECT_TRUE(error.is_object()) << "no error came";
    return error;
  }
  LoopbackGateway gateway;
};

std::string snake_case(kj::StringPtr camel) {
  std::string out;
  for (const char c : camel) {
    if (c >= 'A' && c <= 'Z') out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

TEST_F(RpcServerTest, RequestFieldsMirrorHttpOneToOne) {
  std::vector<std::string> fields;
  for (auto field : capnp::Schema::from<rpc::GenerateRequest>().getFields()) {
    fields.push_back(snake_case(field.getProto().getName()));
  }
  // RPC always streams into the sink, and its result always carries usage.
  fields.push_back("stream");
  fields.push_back("stream_options");
  std::ranges::sort(fields);
  EXPECT_EQ(fields, known_request_fields());
}

TEST_F(RpcServerTest, GeneratesWithTheSameRequestAsHttp) {
  RpcClient c(gateway);
  Sink::Seen seen;
  auto request = c.generate_request("hi there", seen);
  auto r = request.getRequest();
  r.setTemperature(0.5);
  r.setTopP(0.7f);
  r.setMaxTokens(9);
  r.setLogprobs(2);
  r.getSeed().setValue(7);
  r.initStop(1).set(0, "END");
  r.setCacheSalt("ours");
  r.setSpeculation(R"({"method":"exact","depth_max":3})");
  auto result = request.send().wait(c.wait);
  EXPECT_EQ(seen.text, "Hello!");
  EXPECT_EQ(seen.finishes, 1u);
  EXPECT_EQ(seen.dones, 1u);
  EXPECT_EQ(seen.logprobs.size(), seen.ids.size());
  EXPECT_EQ(result.getResult().getSeed(), 7u);
  EXPECT_EQ(result.getResult().getUsage().getCompletionTokens(), seen.ids.size());
  EXPECT_EQ(result.getResult().getUsage().getCachedTokens(), ScriptedBackend::k_cached);
  EXPECT_EQ(result.getResult().getTimings().getCachedTokensDevice(),
            ScriptedBackend::k_cached - ScriptedBackend::k_cached_cold);
  EXPECT_EQ(result.getResult().getTimings().getCachedTokensCold(), ScriptedBackend::k_cached_cold);
  EXPECT_EQ(result.getResult().getTimings().getDraftN(), ScriptedBackend::k_drafted);
  EXPECT_EQ(result.getResult().getTimings().getDraftNAccepted(), ScriptedBackend::k_accepted);
  EXPECT_EQ(result.getResult().getTimings().getPinsRefusedDevice(), ScriptedBackend::k_refused);
  EXPECT_EQ(result.getResult().getTimings().getPinsRefusedCold(), ScriptedBackend::k_refused_cold);
  EXPECT_EQ(std::string(result.getResult().getSystemFingerprint().cStr()), "fp_test");

  RawClient(gateway).request("POST", "/v1/completions",
                             R"({"prompt":"hi there","temperature":0.5,"top_p":0.7,"max_tokens":9,
                                 "logprobs":2,"seed":7,"stop":["END"],"cache_salt":"ours",
                                 "speculation":{"method":"exact","depth_max":3}})");
  ASSERT_EQ(gateway.backend.sessions.size(), 2u);
  EXPECT_EQ(gateway.backend.sessions[1].request.cache_salt, "ours");
  EXPECT_EQ(gateway.backend.sessions[1].request.speculation, (SpeculationParams{true, 3}));
  auto by_rpc = gateway.backend.sessions[0].request;
  by_rpc.id = gateway.backend.sessions[1].request.id;
  EXPECT_EQ(by_rpc, gateway.backend.sessions[1].request);
}

TEST_F(RpcServerTest, ChatsWithLogprobsAndChoices) {
  RpcClient c(gateway);
  Sink::Seen seen;
  auto request = c.service.generateRequest();
  auto message = request.initRequest().initMessages(1)[0];
  message.setRole("user");
  message.setContent("hi");
  request.getRequest().setN(2);
  request.getRequest().setTopLogprobs(3);
  request.setSink(kj::heap<Sink>(seen));
  request.send().wait(c.wait);
  EXPECT_EQ(seen.finishes, 2u);
  EXPECT_EQ(gateway.backend.sessions[0].request.logprobs, 3);
  EXPECT_EQ(seen.logprobs.size(), seen.ids.size());
}

TEST_F(RpcServerTest, RefusesWhatHttpRefusesWithTheSameWords) {
  RpcClient c(gateway);
  Sink::Seen seen;
  auto bad = c.generate_request("x", seen);
  bad.getRequest().setTemperature(-1);
  const Json error = failure(bad.send());
  EXPECT_EQ(error["code"], 400);
  EXPECT_EQ(error["param"], "temperature");
  auto nan = c.generate_request("x", seen);
  nan.getRequest().setTopP(std::numeric_limits<float>::quiet_NaN());
  const Json not_a_number = failure(nan.send());
  EXPECT_EQ(not_a_number["param"], "top_p");
  EXPECT_NE(not_a_number["message"].get<std::string>().find("not nan"), std::string::npos)
      << not_a_number;
  auto both = c.generate_request("x", seen);
  auto message = both.getRequest().initMessages(1)[0];
  message.setRole("user");
  message.setContent("y");
  EXPECT_EQ(failure(both.send())["param"], "prompt");
  auto text = c.generate_request("\xff\xfe", seen);
  EXPECT_EQ(failure(text.send())["param"], "prompt");
  auto tools = c.generate_request("x", seen);
  tools.getRequest().setKv("{");
  EXPECT_EQ(failure(tools.send())["param"], "kv");
  auto deep = c.generate_request("x", seen);
  deep.getRequest().setSpeculation(R"({"depth_max":33})");
  EXPECT_EQ(failure(deep.send())["param"], "speculation.depth_max");
  auto half = c.generate_request("x", seen);
  half.getRequest().setSpeculation("{bad");
  EXPECT_TRUE(failure(half.send())["message"].get<std::string>().starts_with(
      "speculation is not valid JSON"));
  auto none = c.service.generateRequest();
  none.setSink(kj::heap<Sink>(seen));
  EXPECT_EQ(failure(none.send())["param"], "prompt");
  auto model = c.generate_request("x", seen);
  model.getRequest().setModel("other");
  EXPECT_EQ(failure(model.send())["code"], "model_not_found");
  EXPECT_EQ(seen.pushes, 0u);
}

TEST_F(RpcServerTest, ListsOverALimitAreRefusedByName) {
  RpcClient c(gateway);
  Sink::Seen seen;
  const auto refused = [&](auto fill) {
    auto request = c.generate_request("x", seen);
    fill(request.getRequest());
    return failure(request.send())["param"];
  };
  using Request = rpc::GenerateRequest::Builder;
  EXPECT_EQ(refused([](Request r) { r.initMessages(limits::messages_max + 1); }), "messages");
  EXPECT_EQ(refused([](Request r) { r.initStop(limits::stop_strings_max + 1); }), "stop");
  EXPECT_EQ(refused([](Request r) { r.initStopTokenIds(limits::stop_token_ids_max + 1); }),
            "stop_token_ids");
  EXPECT_EQ(refused([](Request r) { r.initLogitBias(limits::logit_bias_entries_max + 1); }),
            "logit_bias");
  EXPECT_EQ(refused([](Request r) { r.getPrompt().initTexts(limits::prompts_max + 1); }), "prompt");
  EXPECT_EQ(refused([](Request r) { r.getPrompt().initTokenLists(limits::prompts_max + 1); }),
            "prompt");
}

TEST_F(RpcServerTest, WhatTheOtherKindOfRequestReadsIsRefusedByName) {
  RpcClient c(gateway);
  Sink::Seen seen;
  using Request = rpc::GenerateRequest::Builder;
  const auto refused = [&](auto fill) {
    auto request = c.generate_request("x", seen);
    fill(request.getRequest());
    return failure(request.send())["param"];
  };
  EXPECT_EQ(refused([](Request r) { r.setTools("[]"); }), "tools");
  EXPECT_EQ(refused([](Request r) { r.setToolChoice("auto"); }), "tool_choice");
  EXPECT_EQ(refused([](Request r) { r.setChatTemplateKwargs("{}"); }), "chat_template_kwargs");
  EXPECT_EQ(refused([](Request r) { r.setAddGenerationPrompt(false); }), "add_generation_prompt");
  EXPECT_EQ(refused([](Request r) { r.setTopLogprobs(2); }), "top_logprobs");
  const auto chat = [](Request r) {
    r.getPrompt().setNone();
    auto message = r.initMessages(1)[0];
    message.setRole("user");
    message.setContent("x");
  };
  EXPECT_EQ(refused([&](Request r) { chat(r), r.setSuffix("x"); }), "suffix");
  EXPECT_EQ(refused([&](Request r) { chat(r), r.setBestOf(1); }), "best_of");
}

TEST_F(RpcServerTest, OneTokenHasOneBias) {
  RpcClient c(gateway);
  Sink::Seen seen;
  auto request = c.generate_request("x", seen);
  auto bias = request.getRequest().initLogitBias(2);
  bias[0].setId(7);
  bias[1].setId(7);
  const Json error = failure(request.send());
  EXPECT_EQ(error["param"], "logit_bias");
  EXPECT_EQ(error["message"], "logit_bias: has the token id 7 twice");
}

TEST_F(RpcServerTest, ErrorsOfJsonInTextFieldsAreAboutThatText) {
  RpcClient c(gateway);
  Sink::Seen seen;
  auto request = c.generate_request("x", seen);
  request.getRequest().setResponseFormat("{");
  EXPECT_EQ(failure(request.send())["message"],
            "response_format is not valid JSON: syntax error at byte 2");
}

TEST_F(RpcServerTest, BackendErrorsArriveAsExceptions) {
  gateway.backend.on_open = [&](ScriptedSession& s) {
    gateway.backend.end(s, Outcome::rejected, fail(ErrorCode::overloaded, "too many"), 1'000);
  };
  RpcClient c(gateway);
  Sink::Seen seen;
  EXPECT_EQ(failure(c.generate_request("x", seen).send())["code"], 429);
  EXPECT_EQ(seen.dones, 0u);
}

TEST_F(RpcServerTest, DroppingTheCallCancels) {
  gateway.backend.on_open = {};
  RpcClient c(gateway);
  Sink::Seen seen;
  {
    auto call = c.generate_request("x", seen).send();
    gateway.run_until([&] { return !gateway.backend.sessions.empty(); });
    EXPECT_FALSE(gateway.backend.sessions[0].cancelled);
  }
  gateway.run_until([&] { return gateway.backend.sessions[0].cancelled; });
  EXPECT_EQ(gateway.gateway->open_requests(), 0u);
  // The connection is still good.
  c.service.healthRequest().send().wait(c.wait);
}

TEST_F(RpcServerTest, LosingTheConnectionCancels) {
  gateway.backend.on_open = {};
  Sink::Seen seen;
  auto c = std::make_unique<RpcClient>(gateway);
  auto call = c->generate_request("x", seen).send();
  gateway.run_until([&] { return !gateway.backend.sessions.empty(); });
  c->stream->shutdownWrite();
  gateway.run_until([&] { return gateway.backend.sessions[0].cancelled; });
}

TEST_F(RpcServerTest, AStuckSinkFillsItsOwnChannelOnly) {
  gateway.backend.on_open = {};
  RpcClient c(gateway);
  Sink::Seen seen;
  seen.stuck = true;
  auto call = c.generate_request("x", seen).send().then([](auto&&) {}, [](kj::Exception&&) {});
  gateway.run_until([&] { return !gateway.backend.sessions.empty(); });
  auto& session = gateway.backend.sessions[0];
  uint64_t sent = 0;
  while (gateway.backend.say(session, "some words of text") != schema::ClientStream::Level::full) {
    ASSERT_LT(++sent, 100'000u);
    if (sent % 4 == 0) {
      gateway.io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(gateway.io.waitScope);
    }
  }
  EXPECT_EQ(RawClient(gateway).request("GET", "/live").status, 200);
}

TEST_F(RpcServerTest, AnswersModelsHealthAndTokenize) {
  RpcClient c(gateway);
  auto models = c.service.modelsRequest().send().wait(c.wait);
  EXPECT_EQ(std::string(models.getModels()[0].getId().cStr()), "tiny");
  auto health = c.service.healthRequest().send().wait(c.wait);
  EXPECT_EQ(std::string(health.getStatus().cStr()), "ready");
  auto tokenize = c.service.tokenizeRequest();
  tokenize.initInput().setPrompt("a b");
  auto tokens = tokenize.send().wait(c.wait);
  auto back = c.service.detokenizeRequest();
  back.setTokens(tokens.getTokens());
  const std::string text = back.send().wait(c.wait).getText().cStr();
  EXPECT_NE(text.find("a b"), std::string::npos);
}

TEST_F(RpcServerTest, TakesModelsByName) {
  RpcClient c(gateway);
  auto models = c.service.modelsRequest().send().wait(c.wait);
  ASSERT_EQ(models.getModels().size(), 2u);
  EXPECT_EQ(std::string(models.getModels()[1].getId().cStr()), "small");
  Sink::Seen seen;
  auto request = c.generate_request("hi", seen);
  request.getRequest().setModel("small");
  auto answer = request.send().wait(c.wait);
  EXPECT_EQ(std::string(answer.getResult().getSystemFingerprint().cStr()), "fp_small");
  EXPECT_EQ(gateway.backend.sessions.back().model, "small");
  auto tokenize = c.service.tokenizeRequest();
  auto input = tokenize.initInput();
  input.setPrompt("a b");
  input.setModel("small");
  EXPECT_EQ(tokenize.send().wait(c.wait).getMaxModelLen(), LoopbackGateway::k_context / 2);
  auto back = c.service.detokenizeRequest();
  back.initTokens(1).set(0, 5);
  back.setModel("large");
  EXPECT_EQ(failure(back.send())["param"], "model");
}

TEST_F(RpcServerTest, TextHoldsNulBytes) {
  const auto& tokenizer = *LoopbackGateway::tiny_tokenizer();
  int32_t nul = 0;
  while (tokenizer.token_bytes(nul) != std::string_view("\0", 1)) ++nul;
  RpcClient c(gateway);
  auto request = c.service.detokenizeRequest();
  auto tokens = request.initTokens(3);
  tokens.set(0, nul);
  tokens.set(1, tokenizer.encode("a", {.add_special = false}).back());
  tokens.set(2, nul);
  auto response = request.send().wait(c.wait);
  const auto text = response.getText();
  EXPECT_EQ(text.size(), 3u);
  EXPECT_EQ(text.begin()[2], '\0');
}

TEST_F(RpcServerTest, LongMessagesGetTheAnswersOfShortOnes) {
  RpcClient c(gateway);
  Sink::Seen seen;
  const std::string words(limits::inline_text_bytes_max, ' ');
  EXPECT_EQ(failure(c.generate_request(words.c_str(), seen).send())["param"], "prompt");
  auto ids = c.service.generateRequest();
  ids.initRequest().getPrompt().initTexts(1).set(0, "hi");
  ids.getRequest().setResponseFormat((R"({"type":"text"})" + words).c_str());
  ids.setSink(kj::heap<Sink>(seen));
  ids.send().wait(c.wait);
  EXPECT_EQ(seen.text, "Hello!");
}

TEST_F(RpcServerTest, AllJsonInTextFieldsDrawsOnOneBudget) {
  RpcClient c(gateway);
  Sink::Seen seen;
  Json wide = Json::object();
  for (int i = 0; i < 3'000; ++i) wide["k" + std::to_string(i)] = 0;
  auto request = c.generate_request("x", seen);
  request.getRequest().setResponseFormat(to_text(wide).c_str());
  request.getRequest().setKv(to_text(wide).c_str());
  EXPECT_EQ(failure(request.send())["param"], "kv");
}

/// Options with one key, secret-good.
struct KeyFile {
  KeyFile() {
    FILE* file = std::fopen(options.api_key_file.c_str(), "w");
    std::fputs("team:secret-good\n", file);
    std::fclose(file);
  }
  ~KeyFile() { std::remove(options.api_key_file.c_str()); }
  GatewayOptions options{.api_key_file = testing::TempDir() + "outrider_rpc_keys"};
};

TEST(RpcKeys, AreNeededWhereTheyAreSet) {
  const KeyFile keys;
  LoopbackGateway guarded(keys.options);
  RpcClient bad(guarded, "sk-bad");
  Json error;
  auto caught = kj::runCatchingExceptions(
      [&] { bad.service.healthRequest().send().wait(guarded.io.waitScope); });
  KJ_IF_MAYBE (exception, caught) {
    error = error_of(*exception);
  }
  EXPECT_EQ(error["code"], 401);
  RpcClient good(guarded, "secret-good");
  good.service.healthRequest().send().wait(guarded.io.waitScope);
}

TEST(RpcLogin, ComesBeforeAnythingLong) {
  const KeyFile keys;
  LoopbackGateway guarded(keys.options);
  const std::string key(limits::rpc_login_bytes_max, 'x');
  RpcClient bad(guarded, key.c_str());
  auto caught =
      kj::runCatchingExceptions([&] { bad.service.healthRequest().send().wait(bad.wait); });
  KJ_IF_MAYBE (exception, caught) {
    EXPECT_EQ(exception->getType(), kj::Exception::Type::DISCONNECTED)
        << exception->getDescription().cStr();
  } else {
    ADD_FAILURE() << "the server took it";
  }
  // Sent before the answer to the login is there.
  RpcClient good(guarded, "secret-good");
  Sink::Seen seen;
  const std::string words(1 << 20, ' ');
  caught = kj::runCatchingExceptions(
      [&] { good.generate_request(words.c_str(), seen).send().wait(good.wait); });
  KJ_IF_MAYBE (exception, caught) {
    EXPECT_EQ(error_of(*exception)["param"], "prompt");
  } else {
    ADD_FAILURE() << "the context took it";
  }
  EXPECT_EQ(std::string(good.service.healthRequest().send().wait(good.wait).getStatus().cStr()),
            "ready");
}

TEST(RpcLogin, EndsConnectionsThatShowNoKeyInTime) {
  GatewayOptions options;
  options.http.header_timeout_ms = 200;
  LoopbackGateway gateway(options);
  RpcClient known(gateway);
  known.service.healthRequest().send().wait(known.wait);
  auto silent = gateway.io.provider->getNetwork()
                    .parseAddress("127.0.0.1", gateway.gateway->rpc_port())
                    .wait(known.wait)
                    ->connect()
                    .wait(known.wait);
  const std::string announced("\x00\x00\x00\x00\x00\x00\x01\x00", 8);  // and nothing after it
  silent->write(announced.data(), announced.size()).wait(known.wait);
  char byte = 0;
  EXPECT_EQ(silent->tryRead(&byte, 1, 1).wait(known.wait), 0u);
  known.service.healthRequest().send().wait(known.wait);
}

TEST(RpcStop, WaitsForClientsToReadWhatTheyWereTold) {
  GatewayOptions options;
  options.stop_flush_ms = 600'000;
  LoopbackGateway gateway(options);
  auto client = gateway.io.provider->getNetwork()
                    .parseAddress("127.0.0.1", gateway.gateway->rpc_port())
                    .wait(gateway.io.waitScope)
                    ->connect()
                    .wait(gateway.io.waitScope);
  gateway.run_until([&] { return gateway.metrics.connections_open.Value() == 1; });
  gateway.gateway->drain().wait(gateway.io.waitScope);
  bool stopped = false;
  auto stop = gateway.gateway->stop().then([&] { stopped = true; }).eagerlyEvaluate(nullptr);
  bool ended = false;
  char byte = 0;
  auto end =
      client->tryRead(&byte, 1, 1).then([&](size_t) { ended = true; }).eagerlyEvaluate(nullptr);
  gateway.run_until([&] { return ended || stopped; });
  EXPECT_TRUE(ended);
  EXPECT_FALSE(stopped);
  client->shutdownWrite();
  gateway.run_until([&] { return stopped; });
}

TEST_F(RpcServerTest, PromptLogprobsComeOnce) {
  gateway.backend.on_open = [&](ScriptedSession& s) {
    gateway.backend.say_prompt(s);
    gateway.backend.answer(s, "ok");
  };
  RpcClient c(gateway);
  Sink::Seen seen;
  auto request = c.generate_request("hi there", seen);
  request.getRequest().setPromptLogprobs(1);
  const auto result = request.send().wait(c.wait);
  EXPECT_EQ(seen.prompts_in_done, 0u);
  ASSERT_EQ(result.getResult().getPrompts().size(), 1u);
  EXPECT_TRUE(result.getResult().getPrompts()[0].getTokens()[1].getHasLogprob());
}

TEST_F(RpcServerTest, GarbageAndHugeMessagesEndTheirConnectionOnly) {
  const std::string huge("\x00\x00\x00\x00\xff\xff\xff\x7f", 8);
  const std::string segments("\xff\xff\xff\x7f\x01\x00\x00\x00", 8);
  for (const std::string& bytes :
       {std::string(4096, 'x'), huge, segments, std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(65'536, '\xff')}) {
    auto stream = gateway.io.provider->getNetwork()
                      .parseAddress("127.0.0.1", gateway.gateway->rpc_port())
                      .wait(gateway.io.waitScope)
                      ->connect()
                      .wait(gateway.io.waitScope);
    stream->write(bytes.data(), bytes.size()).wait(gateway.io.waitScope);
    stream->shutdownWrite();
    char rest[256];
    [[maybe_unused]] auto reset = kj::runCatchingExceptions([&] {
      while (stream->tryRead(rest, 1, sizeof(rest)).wait(gateway.io.waitScope) > 0) {
      }
    });
  }
  RpcClient(gateway).service.healthRequest().send().wait(gateway.io.waitScope);
}

TEST(RpcServer, ResetsThePrefixCache) {
  std::optional<CacheReset> asked;
  LoopbackGateway resettable({}, true, [&](Gateway::Parts& parts) {
    parts.reset_cache = [&](CacheReset what, const CacheResetAnswer& answer) {
      asked = std::move(what);
      answer(CacheResetDone{5, 2, 7});
    };
  });
  RpcClient client(resettable);
  auto request = client.service.resetPrefixCacheRequest();
  request.setCold(true);
  auto results = request.send().wait(client.wait);
  EXPECT_EQ(results.getBlocks(), 5u);
  EXPECT_EQ(results.getBlocksInUse(), 2u);
  EXPECT_EQ(results.getColdBlocks(), 7u);
  ASSERT_TRUE(asked.has_value());
  EXPECT_TRUE(asked->cold);
  EXPECT_FALSE(asked->tenant);
}

}  // namespace
}  // namespace outrider::gateway
