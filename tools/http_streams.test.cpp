#include "tools/http_streams.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <kj/async-unix.h>
#include <unistd.h>

#include <csignal>

#include "base/limits.hpp"
#include "gateway/descriptor_limit.test.hpp"
#include "tools/canned_server.test.hpp"

namespace outrider::tools {
namespace {

std::unique_ptr<HttpStreams> streams_to(const std::string& url,
                                        Duration timeout = std::chrono::minutes(1)) {
  auto streams = HttpStreams::create(url, "", timeout);
  EXPECT_TRUE(streams.ok());
  return std::move(*streams);
}

/// How a POST of `body` ends; `answer` gets what came.
HttpEnd post(HttpStreams& streams, const std::string& body, std::string* answer = nullptr) {
  HttpEnd ended;
  streams.start(
      "/", body,
      [&](unsigned, std::string_view bytes) {
        if (answer != nullptr) answer->append(bytes);
      },
      [&](const HttpEnd& end) { ended = end; });
  streams.run();
  return ended;
}

TEST(HttpStreams, TakesAServerAsTheOtherClientDoes) {
  for (const char* url : {"", "https://x", "http://", "http:///v1", "/v1"}) {
    const auto streams = HttpStreams::create(url, "", std::chrono::seconds(1));
    ASSERT_FALSE(streams.ok()) << url;
    EXPECT_EQ(streams.error().field, "url");
  }
  const CannedServer server({{200, "a"}, {200, "b"}});
  const std::string host = server.url().substr(std::string("http://").size());
  for (const std::string& url : {host, server.url() + "/v1/"}) {
    EXPECT_EQ(post(*streams_to(url), "{}").status, 200u) << url;
  }
}

TEST(HttpStreams, CallsOnlyItsOwnTimeLimitATimeout) {
  const ListeningPort silent;
  const HttpEnd end = post(*streams_to(silent.url(), std::chrono::milliseconds(1)), "{}");
  EXPECT_EQ(end.failure, "timeout");
  EXPECT_EQ(end.detail, "no whole answer within 0.001 s");
  EXPECT_EQ(end.status, 0u);
}

TEST(HttpStreams, EndAtAnInterruptWithWhatTheyHave) {
  kj::UnixEventPort::captureSignal(SIGINT);
  const ListeningPort silent;
  const auto streams = streams_to(silent.url());
  streams->end_at_interrupt();
  bool ended = false;
  streams->start(
      "/", "{}", [](unsigned, std::string_view) {}, [&](const HttpEnd&) { ended = true; });
  streams->after(Duration(0), [] { ::raise(SIGINT); });
  streams->run();
  EXPECT_TRUE(streams->interrupted());
  EXPECT_FALSE(ended);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

TEST(HttpStreams, SaysThatDescriptorsRanOut) {
  const ListeningPort silent;
  const auto streams = streams_to(silent.url());
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(next, 0);
  ::close(next);
  const gateway::DescriptorLimit none_left(static_cast<rlim_t>(next));
  const HttpEnd end = post(*streams, "{}");
  EXPECT_EQ(end.failure, "transport");
  EXPECT_EQ(end.detail, "Too many open files");
}

TEST(HttpStreams, RaisesTheLimitOfDescriptors) {
  const gateway::DescriptorLimit low(64);
  const auto streams = streams_to("127.0.0.1:1");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, low.hard());
}

TEST(HttpStreams, GivesTheAnswerOfAServerThatDoesNotReadTheWholeRequest) {
  const CannedServer server({{413, "too large"}});
  std::string answer;
  const HttpEnd end = post(*streams_to(server.url()), std::string(size_t{32} << 20, ' '), &answer);
  EXPECT_EQ(end.failure, "") << end.detail;
  EXPECT_EQ(end.status, 413u);
  EXPECT_EQ(answer, "too large");
}

TEST(HttpStreams, ReadsNoAnswerWithoutEnd) {
  const CannedServer server({{200, std::string(limits::client_reply_bytes_max + 1, 'x')},
                             {200, std::string(limits::client_reply_bytes_max, 'x')}});
  const auto streams = streams_to(server.url());
  EXPECT_EQ(post(*streams, "").failure, "too large");
  EXPECT_EQ(post(*streams, "").failure, "");
}

}  // namespace
}  // namespace outrider::tools
