#include "tools/http_client.hpp"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace outrider::tools
