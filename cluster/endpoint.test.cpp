#include "cluster/endpoint.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace outrider::cluster {
namespace {

TEST(Endpoint, IsHostAndPort) {
  const auto plain = parse_endpoint("node-7.local:8090", "join");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "node-7.local");
  EXPECT_EQ(plain->port, 8090);
  EXPECT_EQ(parse_endpoint("[::1]:1", "join")->host, "::1");
  EXPECT_EQ(to_string(*parse_endpoint("[::1]:1", "join")), "[::1]:1");
  for (const char* everywhere : {":8090", "*:8090"}) {
    EXPECT_EQ(parse_endpoint(everywhere, "cluster")->host, "") << everywhere;
  }
}

TEST(Endpoint, ErrorsNameTheField) {
  for (const char* wrong :
       {"", "host", "host:", "host:x", "host:65536", "host:-1", "::1", "a:1 "}) {
    const auto parsed = parse_endpoint(wrong, "join");
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().field, "join");
    EXPECT_NE(parsed.error().message.find("HOST:PORT"), std::string::npos);
  }
}

TEST(Endpoint, ProbeSeesWhetherSomebodyListens) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const Endpoint there{"127.0.0.1", ntohs(address.sin_port)};
  const auto bound_only = probe(there, std::chrono::seconds(5));
  ASSERT_FALSE(bound_only);
  EXPECT_NE(bound_only.error().message.find("refused"), std::string::npos);
  ASSERT_EQ(::listen(listener, 4), 0);
  const auto dumb = probe(there, std::chrono::milliseconds(20));
  ASSERT_FALSE(dumb);
  EXPECT_NE(dumb.error().message.find("no cluster port"), std::string::npos);
  ::close(::accept(listener, nullptr, nullptr));
  // A router's greeting, one of gigabytes, and another protocol's.
  const std::string router("\0\0\0\0\0\0\1\xa7", 8);
  for (const std::string& greeting :
       {router, std::string("\0\0\0\0\x1c\0\0\0", 8), std::string("HTTP/1.1")}) {
    std::thread greeter([&] {
      const int peer = ::accept(listener, nullptr, nullptr);
      EXPECT_EQ(::send(peer, greeting.data(), greeting.size(), 0), 8);
      char end = 0;
      ::recv(peer, &end, 1, 0);
      ::close(peer);
    });
    EXPECT_EQ(probe(there, std::chrono::seconds(5)).ok(), greeting == router);
    greeter.join();
  }
  ::close(listener);
  EXPECT_FALSE(probe({"no.such.host.invalid", 1}, std::chrono::seconds(5)));
}

}  // namespace
}  // namespace outrider::cluster
