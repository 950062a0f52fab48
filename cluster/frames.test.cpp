#include "cluster/frames.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/limits.hpp"

namespace outrider::cluster {
namespace {

using Bytes = std::vector<uint8_t>;

void append_frame(Bytes& out, uint8_t operation, uint32_t payload) {
  Bytes head(FrameCheck::k_head_bytes, 0xa5);
  head[0] = operation;
  for (int i = 0; i < 4; ++i) head[4 + i] = static_cast<uint8_t>(payload >> (24 - 8 * i));
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), payload, 0xff);
}

/// Feeds in pieces of random sizes; how many bytes were passed on before a refusal.
size_t passed(const Bytes& bytes, std::mt19937& random) {
  FrameCheck check;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min(bytes.size() - at, size_t{random() % 100 + 1});
    if (!check.feed({bytes.data() + at, size})) return at;
    at += size;
  }
  return bytes.size();
}

TEST(FrameCheck, PassesFramesHoweverTheyAreCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Bytes bytes;
    const int frames = static_cast<int>(random() % 8) + 1;
    for (int i = 0; i < frames; ++i) {
      append_frame(bytes, random() % FrameCheck::k_operations, random() % 400);
    }
    EXPECT_EQ(passed(bytes, random), bytes.size()) << "round " << round;
  }
}

TEST(FrameCheck, ALengthOverTheLimitIsNotPassedOn) {
  std::mt19937 random(8);
  const auto largest = static_cast<uint32_t>(limits::cluster_frame_bytes_max);
  Bytes bytes;
  append_frame(bytes, 2, largest);
  EXPECT_EQ(passed(bytes, random), bytes.size());
  const size_t good = bytes.size();
  for (const uint32_t length : {largest + 1, uint32_t{1} << 31, UINT32_MAX}) {
    Bytes with_bad = bytes;
    append_frame(with_bad, 2, 0);
    for (int i = 0; i < 4; ++i)
      with_bad[good + 4 + i] = static_cast<uint8_t>(length >> (24 - 8 * i));
    EXPECT_LT(passed(with_bad, random), good + FrameCheck::k_head_bytes) << length;
  }
}

TEST(FrameCheck, AnUnknownOperationIsNotPassedOn) {
  for (int operation = 0; operation < 256; ++operation) {
    Bytes bytes;
    append_frame(bytes, static_cast<uint8_t>(operation), 0);
    EXPECT_EQ(FrameCheck().feed(bytes), operation < FrameCheck::k_operations) << operation;
  }
}

}  // namespace
}  // namespace outrider::cluster
