#include "cluster/frames.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace outrider::cluster {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint8_t k_greeting = 0;
constexpr uint8_t k_answer = 1;
constexpr uint8_t k_direct = 2;
constexpr uint8_t k_routed = 3;
constexpr uint8_t k_heartbeat = 6;
constexpr size_t k_id_at = 8;

Bytes frame(uint8_t operation, const Bytes& payload) {
  Bytes out(FrameReader::k_head_bytes, 0);
  out[0] = operation;
  const auto length = static_cast<uint32_t>(payload.size());
  for (int i = 0; i < 4; ++i) out[4 + i] = static_cast<uint8_t>(length >> (24 - 8 * i));
  out[k_id_at] = 0x10;
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

/// As CAF writes one: no stages, a zero, the types' names, their contents.
Bytes message(const std::string& types, size_t contents = 0) {
  Bytes out = {0, 0, 0};
  size_t length = types.size();
  for (; length >= 0x80; length >>= 7) out.push_back(static_cast<uint8_t>(length | 0x80));
  out.push_back(static_cast<uint8_t>(length));
  out.insert(out.end(), types.begin(), types.end());
  out.insert(out.end(), contents, 0xff);
  return out;
}
const std::string k_load = "@<>+outrider::schema::Load";

Bytes greeting(bool server) {
  return frame(server ? k_greeting : k_answer, Bytes(40, 1));
}

bool passes(bool server, const Bytes& bytes) {
  FrameReader reader(server);
  EXPECT_TRUE(reader.take(greeting(server)));
  return reader.take(bytes);
}

TEST(FrameReader, PassesWholeFramesHoweverTheyAreCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Bytes sent = greeting(true);
    const int frames = static_cast<int>(random() % 8) + 1;
    for (int i = 0; i < frames; ++i) {
      const Bytes next = random() % 2 == 0 ? frame(k_heartbeat, {})
                                           : frame(k_direct, message(k_load, random() % 400));
      sent.insert(sent.end(), next.begin(), next.end());
    }
    FrameReader reader(true);
    Bytes got;
    for (size_t at = 0; at < sent.size();) {
      const size_t size = std::min(sent.size() - at, size_t{random() % 100 + 1});
      ASSERT_TRUE(reader.take({sent.data() + at, size})) << "round " << round;
      at += size;
      got.insert(got.end(), reader.ready().begin(), reader.ready().end());
      reader.passed();
    }
    EXPECT_EQ(got, sent) << "round " << round;
  }
}

TEST(FrameReader, HoldsBackAFrameThatIsNotWhole) {
  FrameReader reader(false);
  const Bytes whole = greeting(false);
  ASSERT_TRUE(reader.take({whole.data(), whole.size() - 1}));
  EXPECT_TRUE(reader.ready().empty());
  ASSERT_TRUE(reader.take({&whole.back(), 1}));
  EXPECT_EQ(reader.ready().size(), whole.size());
}

TEST(FrameReader, RefusesALengthOverTheLimitBeforeItComes) {
  const Bytes largest =
      frame(k_direct, message(k_load, limits::cluster_frame_bytes_max - message(k_load).size()));
  EXPECT_TRUE(passes(true, largest));
  for (const uint32_t length : {uint32_t{limits::cluster_frame_bytes_max} + 1, UINT32_MAX}) {
    Bytes head = frame(k_direct, {});
    for (int i = 0; i < 4; ++i) head[4 + i] = static_cast<uint8_t>(length >> (24 - 8 * i));
    EXPECT_FALSE(passes(true, head)) << length;
  }
}

TEST(FrameReader, TakesOneGreetingFirstAndFromTheRightSide) {
  for (const bool server : {true, false}) {
    EXPECT_FALSE(FrameReader(server).take(greeting(!server)));
    EXPECT_FALSE(FrameReader(server).take(frame(k_direct, message(k_load))));
    EXPECT_FALSE(FrameReader(server).take(frame(server ? k_greeting : k_answer, {})))
        << "CAF reads what is not there";
  }
  EXPECT_FALSE(passes(true, greeting(true)));
}

TEST(FrameReader, RefusesUnknownOperations) {
  for (int operation = 7; operation < 256; ++operation) {
    EXPECT_FALSE(passes(true, frame(static_cast<uint8_t>(operation), {}))) << operation;
  }
}

TEST(FrameReader, RefusesMessagesThatMembersDoNotSend) {
  for (const char* types : {"@<>+@exit", "@<>+@config_value", "@<>+@downstream_msg", "@<>+@charbuf",
                            "@<>+outrider::schema::Load+@exit", "@<>+nosuch", "", "@<>x"}) {
    EXPECT_FALSE(passes(true, frame(k_direct, message(types)))) << types;
    Bytes routed(64, 0);
    const Bytes inside = message(types);
    routed.insert(routed.end(), inside.begin(), inside.end());
    EXPECT_FALSE(passes(true, frame(k_routed, routed))) << types;
  }
  Bytes routed(64, 0);
  const Bytes inside = message(k_load, 100);
  routed.insert(routed.end(), inside.begin(), inside.end());
  EXPECT_TRUE(passes(true, frame(k_routed, routed)));
  Bytes staged = message(k_load);
  staged[0] = 1;
  EXPECT_FALSE(passes(true, frame(k_direct, staged)));
  Bytes cut = message(k_load);
  cut.resize(cut.size() - 1);
  EXPECT_FALSE(passes(true, frame(k_direct, cut)));
}

TEST(FrameReader, LooksIntoErrorsForWhatTheyCarry) {
  const auto error_with = [](const std::string& types) {
    Bytes sent = message("@<>+@error", 12);
    sent.push_back(static_cast<uint8_t>(types.size()));
    sent.insert(sent.end(), types.begin(), types.end());
    return frame(k_direct, sent);
  };
  EXPECT_TRUE(passes(true, error_with("@<>")));
  EXPECT_TRUE(passes(true, error_with("@<>+@str")));
  EXPECT_FALSE(passes(true, error_with("@<>+@downstream_msg")));
  EXPECT_FALSE(passes(true, frame(k_direct, message("@<>+@error", 2000))));
}

TEST(FrameReader, RefusesIdsOfStreams) {
  for (const uint8_t bits : {uint8_t{0x20}, uint8_t{0x30}}) {
    Bytes sent = frame(k_direct, message(k_load));
    sent[k_id_at] = bits;
    EXPECT_FALSE(passes(true, sent)) << int{bits};
  }
}

}  // namespace
}  // namespace outrider::cluster
