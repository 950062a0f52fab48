#include <gtest/gtest.h>

#include <tuple>

#include "gateway/raw_client.test.hpp"

/// Several models behind one gateway: each request gets the one that it names.
namespace outrider::gateway {
namespace {

using namespace testing_support;

TEST(ServedModels, AreFoundByNameAndTheFirstWithoutOne) {
  ServedModels models;
  EXPECT_EQ(find_served(models, "tiny").error().code, ErrorCode::unavailable);
  models = {std::make_shared<const ServedModel>(LoopbackGateway::tiny_model()),
            std::make_shared<const ServedModel>(LoopbackGateway::small_model())};
  EXPECT_EQ(*find_served(models, ""), models[0]);
  EXPECT_EQ(*find_served(models, "tiny"), models[0]);
  EXPECT_EQ(*find_served(models, "small"), models[1]);
  const auto missing = find_served(models, "large");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_EQ(missing.error().field, "model");
}

class HttpModels : public testing::Test {
 protected:
  HttpModels() : client(gateway) {
    gateway.backend.on_open = [this](ScriptedSession& s) { gateway.backend.answer(s, "Hello!"); };
  }
  RawResponse chat(const std::string& members) {
    return client.request("POST", "/v1/chat/completions",
                          R"({"messages":[{"role":"user","content":"hi"}])" + members + "}");
  }
  LoopbackGateway gateway;
  RawClient client;
};

TEST_F(HttpModels, ARequestRunsOnTheModelThatItNamesAndSaysSo) {
  for (const auto& [members, name, fingerprint, context] :
       {std::tuple(R"(,"model":"small")", "small", "fp_small", LoopbackGateway::k_context / 2),
        std::tuple("", "tiny", "fp_test", LoopbackGateway::k_context)}) {
    const Json body = chat(members).json();
    EXPECT_EQ(body["model"], name);
    EXPECT_EQ(body["system_fingerprint"], fingerprint);
    const ScriptedSession& session = gateway.backend.sessions.back();
    EXPECT_EQ(session.model, name);
    EXPECT_EQ(session.request.stop.max_tokens + session.request.prompt.size(), context);
  }
  EXPECT_EQ(chat(R"(,"model":"large")").status, 404);
  const auto over = chat(R"(,"model":"small","max_tokens":200)");
  EXPECT_EQ(over.status, 400);
  EXPECT_EQ(chat(R"(,"max_tokens":200)").status, 200) << "the other one has the room";
}

TEST_F(HttpModels, RequestsAreCountedForTheirOwn) {
  const auto has = [&](const std::string& sample) {
    const std::string text = client.request("GET", "/metrics").body;
    return text.find("\n" + sample + "\n") != std::string::npos;
  };
  const std::string successes = "vllm:request_success_total{finished_reason=\"stop\",model_name=";
  EXPECT_TRUE(has("vllm:prompt_tokens_total{model_name=\"small\"} 0")) << "from the start";
  chat(R"(,"model":"small")");
  EXPECT_TRUE(has(successes + "\"small\"} 1"));
  EXPECT_FALSE(has(successes + "\"tiny\"} 1"));
  chat("");
  EXPECT_TRUE(has(successes + "\"tiny\"} 1"));
  EXPECT_TRUE(has("vllm:e2e_request_latency_seconds_count{model_name=\"small\"} 1"));
}

TEST_F(HttpModels, AllAreListedTheFirstOneFirst) {
  const Json models = client.request("GET", "/v1/models").json();
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(models["data"][1]["id"], "small");
  EXPECT_EQ(client.request("GET", "/v1/models/small").json(), models["data"][1]);
  EXPECT_EQ(client.request("GET", "/v1/models/").status, 404);
}

TEST_F(HttpModels, TheTokenizersAreTakenByName) {
  const auto tokenize = [&](const std::string& members) {
    return client.request("POST", "/tokenize", R"({"prompt":"a b")" + members + "}");
  };
  EXPECT_EQ(tokenize(R"(,"model":"small")").json()["max_model_len"],
            LoopbackGateway::k_context / 2);
  EXPECT_EQ(tokenize("").json()["max_model_len"], LoopbackGateway::k_context);
  EXPECT_EQ(tokenize(R"(,"model":"large")").status, 404);
  const auto detokenize = [&](const std::string& model) {
    return client.request("POST", "/detokenize", R"({"tokens":[5],"model":")" + model + R"("})");
  };
  EXPECT_EQ(detokenize("small").status, 200);
  EXPECT_EQ(detokenize("large").status, 404);
}

}  // namespace
}  // namespace outrider::gateway
