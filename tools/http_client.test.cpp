#include "tools/http_client.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tools/canned_server.test.hpp"

namespace outrider::tools {
namespace {

TEST(SseReader, FindsTheSameEventsHoweverTheBytesAreCut) {
  const std::string stream =
      ": ping\n\ndata: {\"a\":1}\r\n\r\ndata:second\n\nevent: x\ndata: [DONE]\n\n";
  const std::vector<std::string> expected = {"{\"a\":1}", "second", "[DONE]"};
  for (size_t cut = 1; cut <= stream.size(); ++cut) {
    SseReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += cut) {
      reader.push(stream.substr(at, cut),
                  [&](std::string_view event) { events.emplace_back(event); });
    }
    EXPECT_EQ(events, expected) << "pieces of " << cut;
  }
}

TEST(HttpClient, RefusesWhatIsNoHttpUrl) {
  for (const char* url : {"", "https://x", "http://", "http:///v1", "/v1"}) {
    const auto client = HttpClient::connect(url);
    ASSERT_FALSE(client.ok()) << url;
    EXPECT_EQ(client.error().field, "url");
  }
  const auto named = HttpClient::connect("http://user:hunter2@host:80/v1");
  ASSERT_FALSE(named.ok());
  EXPECT_NE(named.error().message.find("--api-key"), std::string::npos);
  EXPECT_EQ(named.error().message.find("hunter2"), std::string::npos);
}

TEST(HttpClient, SaysThatNobodyListensHoweverTheServerIsWritten) {
  for (const char* url : {"127.0.0.1:1", "http://127.0.0.1:1", "http://127.0.0.1:1/",
                          "http://127.0.0.1:1/v1", "127.0.0.1:1/v1/"}) {
    auto client = HttpClient::connect(url);
    ASSERT_TRUE(client.ok()) << url;
    const auto reply = (*client)->get("/health");
    ASSERT_FALSE(reply.ok());
    EXPECT_EQ(reply.error().code, ErrorCode::unavailable);
    EXPECT_EQ(reply.error().message, "http://127.0.0.1:1: Connection refused");
  }
}

/// More than the sockets between two processes hold.
constexpr size_t k_large_bytes = size_t{32} << 20;

TEST(HttpClient, GivesTheAnswerOfAServerThatDoesNotReadTheWholeRequest) {
  const CannedServer server({{413, "too large"}});
  auto client = HttpClient::connect(server.url());
  ASSERT_TRUE(client.ok());
  const auto reply = (*client)->post_stream(
      "/", std::string(k_large_bytes, ' '), [](std::string_view) { return true; },
      [] { return false; });
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 413u);
  EXPECT_EQ(reply->body, "too large");
}

TEST(HttpClient, DoesNotWaitForAServerThatStandsStill) {
  const ListeningPort silent;
  auto client = HttpClient::connect(silent.url());
  ASSERT_TRUE(client.ok());
  const auto reply = (*client)->get("/cluster", std::chrono::milliseconds(20));
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, ErrorCode::unavailable);
  EXPECT_NE(reply.error().message.find("no answer in 0.02 s"), std::string::npos)
      << reply.error().message;
}

TEST(HttpClient, CanBeStoppedBeforeTheServerSaysAnything) {
  const ListeningPort silent;
  auto client = HttpClient::connect(silent.url());
  ASSERT_TRUE(client.ok());
  for (const size_t bytes : {size_t{2}, k_large_bytes}) {
    int asked = 0;
    const auto reply = (*client)->post_stream(
        "/", std::string(bytes, ' '), [](std::string_view) { return true; },
        [&] { return ++asked == 2; });
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->status, k_stopped);
  }
}

}  // namespace
}  // namespace outrider::tools
