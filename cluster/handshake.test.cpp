#include "cluster/handshake.hpp"

#include <gtest/gtest.h>

#include <set>

namespace outrider::cluster {
namespace {

TEST(Handshake, OpeningsAreReadBack) {
  const Opening opening{.version = 0x1234,
                        .verdict = Refusal::full,
                        .purpose = Purpose::line,
                        .nonce = random_nonce()};
  const auto read = decode_opening(encode(opening));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->version, opening.version);
  EXPECT_EQ(read->verdict, opening.verdict);
  EXPECT_EQ(read->purpose, opening.purpose);
  EXPECT_EQ(read->nonce, opening.nonce);
}

TEST(Handshake, OtherFirstBytesAreRefused) {
  OpeningBytes bytes = encode({});
  for (size_t i = 0; i < 8; ++i) {
    OpeningBytes other = bytes;
    other[i] ^= 1;
    EXPECT_FALSE(decode_opening(other)) << i;
  }
  bytes[10] = k_refusals;
  EXPECT_FALSE(decode_opening(bytes)) << "a verdict that there is not";
  bytes = encode({});
  bytes[11] = k_purposes;
  EXPECT_FALSE(decode_opening(bytes)) << "a purpose that there is not";
}

TEST(Handshake, NoncesAreFresh) {
  std::set<Nonce> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(random_nonce()).second);
}

TEST(Handshake, AProofIsOfOneSideOneExchangeAndOneSecret) {
  const Exchange exchange{Purpose::actors, random_nonce(), random_nonce()};
  const Exchange turned{Purpose::actors, exchange.server, exchange.member};
  const Exchange later{Purpose::actors, exchange.member, random_nonce()};
  const Exchange line{Purpose::line, exchange.member, exchange.server};
  const std::string secret = "a secret of the cluster";
  EXPECT_EQ(exchange.member_proof(secret), exchange.member_proof(secret));
  const std::set<Digest256> all = {
      exchange.member_proof(secret), exchange.server_proof(secret),
      turned.member_proof(secret),   turned.server_proof(secret),
      later.member_proof(secret),    exchange.member_proof("another"),
      exchange.member_proof(""),     line.member_proof(secret),
      line.server_proof(secret),
  };
  EXPECT_EQ(all.size(), 9U);
}

TEST(Handshake, EachRefusalHasAName) {
  std::set<std::string> names;
  for (size_t i = 0; i < k_refusals; ++i) names.insert(to_string(static_cast<Refusal>(i)));
  EXPECT_EQ(names.size(), k_refusals);
}

}  // namespace
}  // namespace outrider::cluster
