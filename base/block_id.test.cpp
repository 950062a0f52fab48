#include "base/block_id.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace outrider {
namespace {

Digest256 small_namespace() {
  return FieldDigest().field("format", "kv 1").field("layers", 30).finish();
}

std::vector<int32_t> counting(int32_t first, size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// The expected digests come from Python's hashlib and hmac over the message as the header says it.
TEST(BlockId, MatchesWhatAnotherProgramComputes) {
  const Digest256 ns = small_namespace();
  EXPECT_EQ(to_hex(ns), "6a0f6cf820133c754bd0f69a229126d8f28abb14ca706aa577fc6efee49bcf6b");
  const BlockId root = root_block_id("a secret", ns, {});
  EXPECT_EQ(to_hex(root), "dc70dba741df7de4321b861d7c14876d19338b4225460210646a767442db6605");
  EXPECT_EQ(to_hex(root_block_id("a secret", ns, {.tenant = "team", .salt = "pepper"})),
            "dafd4f112acec9400ec3c3d7fdea447a9e62a535d1c57aa70a9bb815f746e30f");
  BlockHasher hasher;
  const BlockId first = hasher.child(root, counting(0, 16));
  EXPECT_EQ(to_hex(first), "4129058e1d35867a3aff12a8c7424e9e6d77278de9cdb232487c817918ba2df6");
  EXPECT_EQ(to_hex(hasher.child(first, counting(16, 16), "adapter")),
            "2319d3fe9a281427763158bbdf183192e2164eda3871bfad1a4b419b6836cf26");
}

TEST(BlockId, AHasherForgetsWhatItNamedBefore) {
  BlockHasher hasher;
  const BlockId parent{};
  const BlockId once = hasher.child(parent, counting(0, 16));
  hasher.child(once, counting(5, 3));
  EXPECT_EQ(hasher.child(parent, counting(0, 16)), once);
}

TEST(BlockId, MovedFieldBoundariesGiveOtherNamespaces) {
  std::set<Digest256> seen;
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"ab", "c"}, {"a", "bc"}, {"abc", ""}, {"", "abc"}};
  for (const auto& [name, value] : fields) {
    EXPECT_TRUE(seen.insert(FieldDigest().field(name, value).finish()).second) << name;
  }
  // One field whose value looks like two.
  const std::string inner("\1\0\0\0\0\0\0\0y\1\0\0\0\0\0\0\0z", 18);
  EXPECT_NE(FieldDigest().field("x", "1").field("y", "z").finish(),
            FieldDigest().field("x", "1" + inner).finish());
}

TEST(BlockId, MovedFieldBoundariesGiveOtherRoots) {
  const Digest256 ns = small_namespace();
  const std::vector<SharingScope> scopes = {
      {"", ""},    {"public", ""}, {"tenant", ""},   {"", "public"}, {"a", "bc"}, {"ab", "c"},
      {"abc", ""}, {"", "abc"},    {"tenanta", "b"}, {"a\0b", ""},   {"a", "b"},
  };
  std::set<BlockId> seen;
  for (const SharingScope& scope : scopes) {
    EXPECT_TRUE(seen.insert(root_block_id("k", ns, scope)).second) << scope.tenant << scope.salt;
  }
  EXPECT_TRUE(seen.insert(root_block_id("K", ns, {})).second) << "another secret";
  Digest256 other = ns;
  other[31] ^= 1;
  EXPECT_TRUE(seen.insert(root_block_id("k", other, {})).second) << "another namespace";
}

TEST(BlockId, EachTokenTheirNumberTheParentAndTheExtrasCount) {
  BlockHasher hasher;
  const BlockId parent = root_block_id("k", small_namespace(), {});
  std::set<BlockId> seen;
  seen.insert(hasher.child(parent, counting(0, 16)));
  for (size_t i = 0; i < 16; ++i) {
    std::vector<int32_t> ids = counting(0, 16);
    ids[i] ^= 1 << 20;
    EXPECT_TRUE(seen.insert(hasher.child(parent, ids)).second) << i;
  }
  EXPECT_TRUE(seen.insert(hasher.child(parent, counting(0, 17))).second);
  EXPECT_TRUE(seen.insert(hasher.child(parent, counting(0, 15))).second);
  EXPECT_TRUE(seen.insert(hasher.child(parent, {})).second);
  EXPECT_TRUE(seen.insert(hasher.child(BlockId{}, counting(0, 16))).second);
  // A token's bytes moved to the extras.
  const int32_t last = 15;
  const std::string_view bytes(reinterpret_cast<const char*>(&last), sizeof(last));
  EXPECT_TRUE(seen.insert(hasher.child(parent, counting(0, 15), bytes)).second);
  EXPECT_TRUE(seen.insert(hasher.child(parent, counting(0, 16), "x")).second);
}

}  // namespace
}  // namespace outrider
