#include "gateway/cache_reset.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

#include "gateway/raw_client.test.hpp"

/// POST /reset_prefix_cache over real loopback sockets: whose blocks it means, what it takes.
namespace outrider::gateway {
namespace {

using namespace testing_support;

constexpr const char* k_reset_path = "/reset_prefix_cache";

struct Asked {
  CacheReset what;
  CacheResetAnswer answer;
};

/// A gateway whose resets answer when the test says so.
class CacheResetTest : public testing::Test {
 protected:
  CacheResetTest() { std::ofstream(keys_) << "ann:secret-ann\nops:secret-ops\n"; }
  ~CacheResetTest() override { std::remove(keys_.c_str()); }

  std::function<void(Gateway::Parts&)> keeping() {
    return [this](Gateway::Parts& parts) {
      parts.reset_cache = [this](CacheReset what, CacheResetAnswer answer) {
        asked.push_back({std::move(what), std::move(answer)});
        if (at_once) answer_from_another_thread();
      };
    };
  }
  void answer_from_another_thread() {
    std::thread([this] {
      CacheResetDone done{5, 2, std::nullopt};
      if (asked.back().what.cold) done.cold_blocks = 7;
      asked.back().answer(done);
      asked.back().answer = nullptr;
    }).join();
  }
  GatewayOptions with_keys() const {
    GatewayOptions options;
    options.api_key_file = keys_;
    options.admin_tenant = "ops";
    return options;
  }

  std::vector<Asked> asked;
  bool at_once = true;

 private:
  const std::string keys_ = testing::TempDir() + "outrider_reset_keys";
};

TEST_F(CacheResetTest, WithoutKeysAnybodyResetsAll) {
  LoopbackGateway gateway({}, true, keeping());
  RawClient client(gateway);
  RawResponse r = client.request("POST", k_reset_path);
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, R"({"blocks":5,"blocks_in_use":2})");
  client.send("POST /reset_prefix_cache HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200) << "no body at all, as vLLM's clients send it";
  r = client.request("POST", k_reset_path, R"({"cold":true})");
  EXPECT_EQ(r.body, R"({"blocks":5,"blocks_in_use":2,"cold_blocks":7})");
  EXPECT_EQ(client.request("POST", k_reset_path, R"({"cold":null})").status, 200);
  ASSERT_EQ(asked.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(asked[i].what.tenant) << i;
    EXPECT_EQ(asked[i].what.cold, i == 2);
  }
}

TEST_F(CacheResetTest, ATenantResetsItsOwnAndTheAdminAll) {
  LoopbackGateway gateway(with_keys(), true, keeping());
  RawClient client(gateway);
  EXPECT_EQ(client.request("POST", k_reset_path).status, 401);
  EXPECT_TRUE(asked.empty());
  EXPECT_EQ(client.request("POST", k_reset_path, "", "Authorization: Bearer secret-ann\r\n").status,
            200);
  EXPECT_EQ(asked.back().what.tenant, "ann");
  EXPECT_EQ(client.request("POST", k_reset_path, "", "Authorization: Bearer secret-ops\r\n").status,
            200);
  EXPECT_FALSE(asked.back().what.tenant);
}

TEST_F(CacheResetTest, WhatWouldResetLessThanAskedForIsRefused) {
  LoopbackGateway gateway({}, true, keeping());
  RawClient client(gateway);
  for (const auto& [body, param] :
       {std::pair(R"({"cold":"yes"})", "cold"), {R"({"Cold":true})", "Cold"}}) {
    const RawResponse r = client.request("POST", k_reset_path, body);
    EXPECT_EQ(r.status, 400) << body;
    EXPECT_EQ(r.error()["param"], param);
  }
  for (const char* body : {"[]", "{", "true"}) {
    EXPECT_EQ(client.request("POST", k_reset_path, body).status, 400) << body;
  }
  const RawResponse r = client.request("POST", "/reset_prefix_cache?reset_external=true");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(r.error()["param"], "reset_external");
  EXPECT_EQ(client.request("GET", k_reset_path).status, 405);
  EXPECT_TRUE(asked.empty());
}

TEST_F(CacheResetTest, OneIsUnderWayAtATime) {
  LoopbackGateway gateway({}, true, keeping());
  at_once = false;
  RawClient first(gateway);
  RawClient second(gateway);
  first.send_request("POST", k_reset_path, "");
  gateway.run_until([this] { return asked.size() == 1; });
  EXPECT_EQ(second.request("POST", k_reset_path).status, 429);
  answer_from_another_thread();
  EXPECT_EQ(first.read_response().status, 200);
  at_once = true;
  EXPECT_EQ(second.request("POST", k_reset_path).status, 200);
}

TEST_F(CacheResetTest, FailuresAndAStopAreTold) {
  LoopbackGateway gateway({}, true, keeping());
  at_once = false;
  RawClient client(gateway);
  client.send_request("POST", k_reset_path, R"({"cold":true})");
  gateway.run_until([this] { return asked.size() == 1; });
  asked.back().answer(fail(ErrorCode::unavailable, "the KV store cannot be written: full"));
  asked.clear();
  RawResponse r = client.read_response();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.error()["message"], "the KV store cannot be written: full");
  client.send_request("POST", k_reset_path, "");
  gateway.run_until([this] { return asked.size() == 1; });
  asked.clear();  // an engine that stops drops what it was asked
  r = client.read_response();
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.error()["message"], "the server is stopping");
}

TEST_F(CacheResetTest, IsRefusedWhileTheModelLoads) {
  LoopbackGateway gateway({}, false, keeping());
  RawClient client(gateway);
  EXPECT_EQ(client.request("POST", k_reset_path).status, 503);
  EXPECT_TRUE(asked.empty());
}

}  // namespace
}  // namespace outrider::gateway
