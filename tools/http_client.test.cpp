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
  for (const char* url : {"", "localhost:8080", "https://x", "http://"}) {
    const auto client = HttpClient::connect(url);
    ASSERT_FALSE(client.ok()) << url;
    EXPECT_EQ(client.error().field, "url");
  }
}

TEST(HttpClient, SaysThatNobodyListens) {
  auto client = HttpClient::connect("http://127.0.0.1:1");
  ASSERT_TRUE(client.ok());
  const auto reply = (*client)->get("/health");
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace outrider::tools
