#include <gtest/gtest.h>

#include "gateway/raw_client.test.hpp"

/// How connections end, and what frames a body: over real loopback sockets.
namespace outrider::gateway {
namespace {

using namespace testing_support;

class HttpConnections : public testing::Test {
 protected:
  HttpConnections() : client(gateway) {
    gateway.backend.on_open = [this](ScriptedSession& s) {
      gateway.backend.answer(s, "some text");
    };
  }
  /// A POST whose headers the test gives, without those that it is about.
  RawResponse post(const std::string& headers, const std::string& body = k_body,
                   const char* version = "1.1") {
    RawClient fresh(gateway);
    fresh.send("POST /v1/completions HTTP/" + std::string(version) + "\r\n" + headers + "\r\n" +
               body);
    return fresh.read_response();
  }
  static std::string length(std::string_view body = k_body) {
    return "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }

  LoopbackGateway gateway;
  RawClient client;
};

TEST_F(HttpConnections, StayOpenUnlessTheClientSaysClose) {
  auto first = client.request("GET", "/live");
  EXPECT_EQ(first.headers.count("connection"), 0u);
  EXPECT_EQ(client.request("POST", k_text_path, k_body).status, 200);
  auto last = client.request("POST", k_text_path, k_body, "Connection: x, Close\r\n");
  EXPECT_EQ(last.status, 200);
  EXPECT_EQ(last.headers["connection"], "close");
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpConnections, EndAfterEachKindOfLastReply) {
  const std::string close = "Connection: close\r\n";
  for (const char* request : {"GET /live", "HEAD /health", "GET /nothing", "DELETE /v1/models"}) {
    RawClient c(gateway);
    c.send(std::string(request) + " HTTP/1.1\r\nHost: x\r\n" + close + "\r\n");
    const std::string reply = c.read_all();
    EXPECT_NE(reply.find("Connection: close"), reply.npos) << reply;
  }
  RawClient streams(gateway);
  streams.send_request("POST", k_text_path, R"({"prompt":"x","stream":true})", close);
  EXPECT_TRUE(streams.read_all().ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
  // Refused before its body is read: the client still gets to see why.
  RawClient refused(gateway);
  refused.send("POST /v1/completions HTTP/1.1\r\nContent-Type: text/html\r\n" + close + length() +
               "\r\n" + k_body);
  EXPECT_EQ(refused.read_response().status, 415);
  EXPECT_EQ(refused.read_all(), "");
}

TEST_F(HttpConnections, WhatIsPipelinedBehindTheLastRequestIsNotAnswered) {
  client.send("GET /live HTTP/1.1\r\nConnection: close\r\n\r\nGET /live HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpConnections, AnHttp10StreamIsEndedByTheConnectionAndHasNoChunks) {
  const std::string body = R"({"prompt":"x","stream":true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n" + length(body) +
              "\r\n" + body);
  const std::string reply = client.read_all();
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
  EXPECT_EQ(reply.find("ransfer-Encoding"), reply.npos) << reply;
  EXPECT_NE(reply.find("Connection: close\r\n"), reply.npos) << reply;
  EXPECT_NE(reply.find("\r\n\r\ndata: {"), reply.npos) << reply;
  EXPECT_TRUE(reply.ends_with("\n\ndata: [DONE]\n\n")) << reply;
}

TEST_F(HttpConnections, AnHttp10RequestIsTheOnlyOne) {
  auto r = post("Content-Type: application/json\r\n" + length(), k_body, "1.0");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.headers["connection"], "close");
  // A line that comes byte by byte, with a blank behind it.
  RawClient slow(gateway);
  for (const char c : std::string("GET /live HTTP/1.0 \r\n\r\n")) {
    slow.send({&c, 1});
    gateway.run_until([] { return true; });
  }
  EXPECT_EQ(slow.read_response().status, 200);
  EXPECT_EQ(slow.read_all(), "");
}

TEST_F(HttpConnections, RepliesSayCloseWhileDraining) {
  client.request("GET", "/live");
  auto drain = gateway.gateway->drain();
  auto r = client.request("GET", "/health");
  EXPECT_EQ(r.status, 503);
  EXPECT_EQ(r.headers["connection"], "close");
  EXPECT_EQ(client.read_all(), "");
  EXPECT_TRUE(drain.wait(gateway.io.waitScope));
}

TEST_F(HttpConnections, AClientThatExpects100IsToldToContinue) {
  client.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n" + length() +
              "Expect: 100-Continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(k_body);
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.request("GET", "/live").status, 200);
  // Refused instead: whether a body follows is not known, so nothing else can.
  auto r = post("Content-Type: text/html\r\n" + length() + "Expect: 100-continue\r\n", "");
  EXPECT_EQ(r.status, 415);
  EXPECT_EQ(r.headers["connection"], "close");
  EXPECT_EQ(post("Content-Type: application/json\r\nExpect: tea\r\n" + length()).status, 417);
}

TEST_F(HttpConnections, MediaTypesAreComparedAsTheyAreDefined) {
  for (const char* type : {"application/json", "Application/JSON; charset=utf-8",
                           "application/json ;a=b", "application/vnd.api+json"}) {
    EXPECT_EQ(post("Content-Type: " + std::string(type) + "\r\n" + length()).status, 200) << type;
  }
  for (const char* type : {"text/plain; a=+json", "application/jsonx", "text/plain", ""}) {
    EXPECT_EQ(post("Content-Type: " + std::string(type) + "\r\n" + length()).status, 415) << type;
  }
  EXPECT_EQ(post(length()).status, 415);
}

TEST_F(HttpConnections, WrongFramingIsTheClientsFaultAndEndsTheConnection) {
  const std::string json = "Content-Type: application/json\r\n";
  for (const char* lengths :
       {"Content-Length: -5\r\n", "Content-Length: +5\r\n", "Content-Length: 15, 15\r\n",
        "Content-Length: 0x5\r\n", "Content-Length: 15\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n"}) {
    auto r = post(json + lengths);
    EXPECT_EQ(r.status, 400) << lengths;
    EXPECT_EQ(r.headers["connection"], "close") << lengths;
    EXPECT_TRUE(r.headers.count("x-request-id")) << lengths;
  }
  auto zipped = post(json + length() + "Content-Encoding: gzip\r\n");
  EXPECT_EQ(zipped.status, 415);
  EXPECT_NE(zipped.error()["message"].get<std::string>().find("Content-Encoding"),
            std::string::npos);
}

}  // namespace
}  // namespace outrider::gateway
