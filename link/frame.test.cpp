#include "link/frame.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/philox.hpp"
#include "link/fixture.test.hpp"

namespace outrider::link {
namespace {

using testing_support::bytes_for;
using testing_support::wire_bytes;

Frame data_frame(uint64_t sequence, std::span<const std::byte> payload) {
  return {FrameKind::data, 2, sequence, 0x1122334455667788, payload.size(), payload};
}

/// What a reader says of a stream that comes in one piece.
LinkEnd verdict(const std::vector<std::byte>& bytes) {
  FrameReader reader;
  std::memcpy(reader.room().data(), bytes.data(), bytes.size());
  reader.filled(bytes.size());
  while (reader.next()) {
  }
  return reader.end();
}

/// A header with one field changed and a right check sum.
template <class T>
LinkEnd verdict_with(size_t offset, T value) {
  auto bytes = wire_bytes(data_frame(0, {}));
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const uint64_t check = hash64(std::span(bytes).first(56));
  std::memcpy(bytes.data() + 56, &check, sizeof(check));
  return verdict(bytes);
}

TEST(Frame, ComesBackAsItWasHoweverItIsCut) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    std::vector<std::vector<std::byte>> payloads;
    std::vector<std::byte> stream;
    for (uint64_t i = 0; i < 20; ++i) {
      payloads.push_back(bytes_for(i, random.below(3'000)));
      const auto bytes = wire_bytes(data_frame(i, payloads.back()));
      stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    FrameReader reader;
    size_t found = 0;
    for (size_t at = 0; at < stream.size();) {
      const size_t count = std::min<size_t>(1 + random.below(5'000), stream.size() - at);
      std::memcpy(reader.room().data(), stream.data() + at, count);
      reader.filled(count);
      at += count;
      while (const auto frame = reader.next()) {
        ASSERT_LT(found, payloads.size());
        EXPECT_EQ(frame->kind, FrameKind::data);
        EXPECT_EQ(frame->stream, 2);
        EXPECT_EQ(frame->sequence, found);
        EXPECT_EQ(frame->value, 0x1122334455667788u);
        EXPECT_EQ(frame->message_bytes, payloads[found].size());
        ASSERT_TRUE(std::equal(frame->payload.begin(), frame->payload.end(),
                               payloads[found].begin(), payloads[found].end()))
            << "seed " << seed;
        ++found;
      }
    }
    EXPECT_EQ(found, payloads.size()) << "seed " << seed;
    EXPECT_TRUE(reader.is_between_frames());
    EXPECT_EQ(reader.end(), LinkEnd::none);
  }
}

TEST(Frame, TheLargestOneFitsTheReader) {
  const auto payload = bytes_for(1, limits::link_frame_bytes_max);
  EXPECT_EQ(verdict(wire_bytes(data_frame(0, payload))), LinkEnd::none);
}

TEST(Frame, EveryFlippedBitIsFound) {
  const auto payload = bytes_for(1, 100);
  auto bytes = wire_bytes(data_frame(0, payload));
  ASSERT_EQ(verdict(bytes), LinkEnd::none);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
    const LinkEnd end = verdict(bytes);
    EXPECT_EQ(end, bit < 32   ? LinkEnd::format
                   : bit < 40 ? LinkEnd::version
                              : LinkEnd::checksum)
        << "bit " << bit;
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
  }
}

TEST(Frame, ATruncatedOneIsNoneYet) {
  const auto bytes = wire_bytes(data_frame(0, bytes_for(1, 100)));
  for (size_t size = 1; size < bytes.size(); ++size) {
    FrameReader reader;
    std::memcpy(reader.room().data(), bytes.data(), size);
    reader.filled(size);
    EXPECT_FALSE(reader.next()) << size;
    EXPECT_EQ(reader.end(), LinkEnd::none) << size;
    EXPECT_FALSE(reader.is_between_frames()) << size;
  }
}

TEST(Frame, LengthsAreRefusedBeforeAnythingIsReadForThem) {
  EXPECT_EQ(verdict_with<uint32_t>(8, limits::link_frame_bytes_max + 1), LinkEnd::oversized);
  EXPECT_EQ(verdict_with<uint32_t>(8, UINT32_MAX), LinkEnd::oversized);
  EXPECT_EQ(verdict_with<uint64_t>(32, limits::link_message_bytes_max + 1), LinkEnd::oversized);
  EXPECT_EQ(verdict_with<uint64_t>(32, UINT64_MAX), LinkEnd::oversized);
}

TEST(Frame, WhatHasNoMeaningIsRefused) {
  EXPECT_EQ(verdict_with<uint8_t>(4, k_frame_version + 1), LinkEnd::version);
  EXPECT_EQ(verdict_with<uint8_t>(5, 0), LinkEnd::format);
  EXPECT_EQ(verdict_with<uint8_t>(5, 5), LinkEnd::format);
  EXPECT_EQ(verdict_with<uint8_t>(7, 1), LinkEnd::format);
  EXPECT_EQ(verdict_with<uint32_t>(12, 1), LinkEnd::format);
  // A ping with a stream and a value, and a hello with a payload.
  EXPECT_EQ(verdict_with<uint8_t>(5, uint8_t{4}), LinkEnd::format);
  Frame hello{FrameKind::hello, 3, 0, 1'000, 0, {}};
  EXPECT_EQ(verdict(wire_bytes(hello)), LinkEnd::none);
  const auto payload = bytes_for(1, 1);
  hello.payload = payload;
  EXPECT_EQ(verdict(wire_bytes(hello)), LinkEnd::format);
}

TEST(Frame, OnesThatAreRepeatedLostOrMovedAreFound) {
  const auto first = wire_bytes(data_frame(0, bytes_for(0, 10)));
  const auto second = wire_bytes(data_frame(1, bytes_for(1, 10)));
  const auto third = wire_bytes(data_frame(2, bytes_for(2, 10)));
  const auto joined = [](std::initializer_list<std::vector<std::byte>> frames) {
    std::vector<std::byte> out;
    for (const auto& frame : frames) out.insert(out.end(), frame.begin(), frame.end());
    return out;
  };
  EXPECT_EQ(verdict(joined({first, second, third})), LinkEnd::none);
  EXPECT_EQ(verdict(joined({first, first})), LinkEnd::sequence);
  EXPECT_EQ(verdict(joined({first, third})), LinkEnd::sequence);
  EXPECT_EQ(verdict(joined({second, first})), LinkEnd::sequence);
}

}  // namespace
}  // namespace outrider::link
