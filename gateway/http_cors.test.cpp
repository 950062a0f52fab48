#include <gtest/gtest.h>

#include "gateway/raw_client.test.hpp"

/// What browsers ask for web pages, and what they are told.
namespace outrider::gateway {
namespace {

using namespace testing_support;

#define k_page "Origin: https://page.example\r\n"
#define k_asks                              \
  "Access-Control-Request-Method: POST\r\n" \
  "Access-Control-Request-Headers: authorization,content-type\r\n"

constexpr const char* k_allow_origin = "access-control-allow-origin";

GatewayOptions with_origins(const char* origins) {
  GatewayOptions options;
  options.http.cors_origins = origins;
  return options;
}

TEST(HttpCors, EveryPageMayAskByDefault) {
  LoopbackGateway usual;
  RawClient client(usual);
  auto preflight = client.request("OPTIONS", k_chat_path, "", k_page k_asks);
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers[k_allow_origin], "*");
  EXPECT_EQ(preflight.headers["access-control-allow-headers"], "authorization,content-type");
  EXPECT_NE(preflight.headers["access-control-allow-methods"].find("POST"), std::string::npos);
  EXPECT_EQ(preflight.body, "");
  EXPECT_EQ(client.request("GET", "/v1/models", "", k_page).headers[k_allow_origin], "*");
  EXPECT_EQ(client.request("GET", "/nothing", "", k_page).headers[k_allow_origin], "*");
  EXPECT_FALSE(client.request("GET", "/v1/models").headers.contains(k_allow_origin));
  usual.backend.on_open = [&](ScriptedSession& s) { usual.backend.answer(s, "ok"); };
  auto stream =
      client.request("POST", "/v1/completions", R"({"prompt":"x","stream":true})", k_page);
  EXPECT_EQ(stream.headers[k_allow_origin], "*");
}

TEST(HttpCors, ListedPagesMayAsk) {
  LoopbackGateway choosy(with_origins("https://other.example, https://Page.example"));
  auto ours = RawClient(choosy).request("OPTIONS", k_chat_path, "", k_page k_asks);
  EXPECT_EQ(ours.status, 204);
  EXPECT_EQ(ours.headers[k_allow_origin], "https://page.example");
  EXPECT_EQ(ours.headers["vary"], "Origin");
}

TEST(HttpCors, OtherPagesMayNotAsk) {
  for (const char* origins : {"https://other.example", "off"}) {
    LoopbackGateway closed(with_origins(origins));
    auto refused = RawClient(closed).request("OPTIONS", k_chat_path, "", k_page k_asks);
    EXPECT_EQ(refused.status, 405) << origins;
    EXPECT_FALSE(refused.headers.contains(k_allow_origin)) << origins;
  }
}

TEST(HttpCors, APreflightCarriesNoKey) {
  const std::string path = testing::TempDir() + "outrider_cors_keys";
  FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("secret-good\n", file);
  std::fclose(file);
  GatewayOptions options;
  options.api_key_file = path;
  LoopbackGateway guarded(options);
  RawClient client(guarded);
  EXPECT_EQ(client.request("OPTIONS", k_chat_path, "", k_page k_asks).status, 204);
  auto refused = client.request("GET", "/v1/models", "", k_page);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers[k_allow_origin], "*") << "or the page cannot read why";
  std::remove(path.c_str());
}

}  // namespace
}  // namespace outrider::gateway
