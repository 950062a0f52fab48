#include "cluster/endpoint.hpp"

#include <gtest/gtest.h>

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
       {"", "host", "host:", "host:x", "host:65536", "host:-1", "::1", "a:1 ", "unix:1"}) {
    const auto parsed = parse_endpoint(wrong, "join");
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().field, "join");
    EXPECT_NE(parsed.error().message.find("HOST:PORT"), std::string::npos);
  }
}

TEST(Endpoint, AddressesAreNoNames) {
  for (const char* address : {"127.0.0.1", "10.0.0.1", "::", "fe80::1"}) {
    EXPECT_TRUE(is_address(address)) << address;
  }
  for (const char* name : {"localhost", "node-7", "10.example", "127.0.0.1.example"}) {
    EXPECT_FALSE(is_address(name)) << name;
  }
}

TEST(Endpoint, LoopbackIsThisMachineOnly) {
  for (const char* own : {"localhost", "::1", "127.0.0.1", "127.1.2.3"}) {
    EXPECT_TRUE(is_loopback(own)) << own;
  }
  for (const char* other :
       {"127.foo.example", "", "0.0.0.0", "::", "10.0.0.1", "node-7", "localhost.example"}) {
    EXPECT_FALSE(is_loopback(other)) << other;
  }
}

}  // namespace
}  // namespace outrider::cluster
