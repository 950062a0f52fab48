#include "link/session.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "link/fixture.test.hpp"

namespace outrider::link {
namespace {

using namespace std::literals;
using testing_support::bytes_for;
using testing_support::End;
using testing_support::is_genuine;
using testing_support::message_for;
using testing_support::wire_bytes;

constexpr LinkSettings k_tiny{.streams = 2, .window_bytes = 4'096, .frame_bytes = 256};

/// A session and a peer that says what a test wants, in virtual time.
class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    EXPECT_TRUE(ours_.write(now_));  // the hello
  }
  void greet() { say({FrameKind::hello, k_tiny.streams, 0, k_tiny.window_bytes, 0, {}}); }
  void say(Frame frame) {
    frame.sequence = said_++;
    ours_.read(wire_bytes(frame), now_);
  }
  void say_data(uint8_t stream, uint64_t tag, uint64_t size, std::span<const std::byte> part) {
    say({FrameKind::data, stream, 0, tag, size, part});
  }
  void push(uint32_t stream, Message message) { EXPECT_TRUE(ours_.session.push(stream, message)); }
  LinkEnd end() const { return ours_.session.end(); }
  void pass(Duration time) {
    now_ += time;
    ours_.session.tick(now_);
  }

  TimePoint now_ = 100s;
  End ours_{k_tiny, now_};
  uint64_t said_ = 0;
};

TEST_F(SessionTest, AMessageInPartsIsHandedOutWhenItIsWhole) {
  greet();
  const auto bytes = bytes_for(5, 600);
  say_data(1, 5, 600, std::span(bytes).first(256));
  say_data(1, 5, 600, std::span(bytes).subspan(256, 256));
  EXPECT_FALSE(ours_.session.pop(1));
  say_data(1, 5, 600, std::span(bytes).subspan(512));
  const auto message = ours_.session.pop(1);
  ASSERT_TRUE(message);
  EXPECT_TRUE(is_genuine(*message));
  EXPECT_EQ(end(), LinkEnd::none);
}

TEST_F(SessionTest, NothingGoesBeforeTheHelloAndThatOnce) {
  say({});
  EXPECT_EQ(end(), LinkEnd::format);
}

TEST_F(SessionTest, ASecondHelloIsNoFrameForNow) {
  greet();
  greet();
  EXPECT_EQ(end(), LinkEnd::format);
}

TEST_F(SessionTest, APeerWithOtherSettingsIsRefused) {
  say({FrameKind::hello, k_tiny.streams + 1, 0, k_tiny.window_bytes, 0, {}});
  EXPECT_EQ(end(), LinkEnd::settings);
}

TEST_F(SessionTest, APeerWithAnotherWindowIsRefused) {
  say({FrameKind::hello, k_tiny.streams, 0, k_tiny.window_bytes + 1, 0, {}});
  EXPECT_EQ(end(), LinkEnd::settings);
}

TEST_F(SessionTest, AStreamThatThereIsNotIsNoFrame) {
  greet();
  say_data(2, 1, 0, {});
  EXPECT_EQ(end(), LinkEnd::format);
}

TEST_F(SessionTest, AMessageLargerThanAWindowIsRefusedByItsFirstFrame) {
  greet();
  say_data(0, 1, k_tiny.message_bytes_max() + 1, bytes_for(1, 1));
  EXPECT_EQ(end(), LinkEnd::oversized);
}

TEST_F(SessionTest, WhatDoesNotGoOnWithTheMessageEndsTheLink) {
  const auto after_a_part = [](uint64_t tag, uint64_t size, size_t part) {
    End end(k_tiny, 100s);
    uint64_t sequence = 0;
    const auto bytes = bytes_for(1, 400);
    for (const Frame& frame :
         {Frame{FrameKind::hello, k_tiny.streams, sequence++, k_tiny.window_bytes, 0, {}},
          Frame{FrameKind::data, 0, sequence++, 1, 400, std::span(bytes).first(200)},
          Frame{FrameKind::data, 0, sequence++, tag, size, std::span(bytes).first(part)}}) {
      end.read(wire_bytes(frame), 100s);
    }
    return end.session.end();
  };
  EXPECT_EQ(after_a_part(1, 400, 200), LinkEnd::none);
  EXPECT_EQ(after_a_part(2, 400, 200), LinkEnd::message);
  EXPECT_EQ(after_a_part(1, 300, 100), LinkEnd::message);
  EXPECT_EQ(after_a_part(1, 400, 201), LinkEnd::message);
  EXPECT_EQ(after_a_part(1, 400, 0), LinkEnd::message);
}

TEST_F(SessionTest, APeerThatSendsMoreThanItsCreditIsCutOff) {
  greet();
  // Empty messages cost, too: so many fit a window.
  const uint64_t fit = k_tiny.window_bytes / cost_of(0);
  for (uint64_t i = 0; i < fit; ++i) say_data(0, i, 0, {});
  EXPECT_EQ(end(), LinkEnd::none);
  EXPECT_EQ(ours_.session.incoming().held_bytes(0), fit * cost_of(0));
  say_data(1, 0, 0, {});  // another stream has its own
  EXPECT_EQ(end(), LinkEnd::none);
  say_data(0, fit, 0, {});
  EXPECT_EQ(end(), LinkEnd::credit);
}

TEST_F(SessionTest, CreditComesBackWithWhatIsTakenAndNotBefore) {
  greet();
  say_data(0, 1, 100, bytes_for(1, 100));
  EXPECT_FALSE(ours_.write(now_));
  ASSERT_TRUE(ours_.session.pop(0));
  const auto piece = ours_.session.next(now_);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->frame.kind, FrameKind::credit);
  EXPECT_EQ(piece->frame.stream, 0);
  EXPECT_EQ(piece->frame.value, cost_of(100));
  ours_.session.written(now_);
  EXPECT_FALSE(ours_.write(now_));
}

TEST_F(SessionTest, APeerThatGivesBackMoreThanItTookIsCutOff) {
  greet();
  push(0, message_for(1, 100));
  EXPECT_TRUE(ours_.write(now_));
  say({FrameKind::credit, 0, 0, cost_of(100), 0, {}});
  EXPECT_EQ(end(), LinkEnd::none);
  say({FrameKind::credit, 0, 0, 1, 0, {}});
  EXPECT_EQ(end(), LinkEnd::credit);
}

TEST_F(SessionTest, CreditForAMessageThatIsStillBeingSentCannotBe) {
  greet();
  push(0, message_for(1, 300));
  EXPECT_TRUE(ours_.write(now_));  // the first of two frames
  say({FrameKind::credit, 0, 0, cost_of(300), 0, {}});
  EXPECT_EQ(end(), LinkEnd::credit);
}

TEST_F(SessionTest, CreditOfNothingIsNoFrame) {
  greet();
  say({FrameKind::credit, 0, 0, 0, 0, {}});
  EXPECT_EQ(end(), LinkEnd::format);
}

TEST_F(SessionTest, AStreamWithoutCreditWaitsAndOthersGoOn) {
  greet();
  push(0, message_for(1, 3'000));
  while (ours_.write(now_)) {
  }
  push(0, message_for(2, 3'000));
  EXPECT_FALSE(ours_.write(now_));
  push(1, message_for(3, 10));
  const auto piece = ours_.session.next(now_);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->frame.stream, 1);
  ours_.session.written(now_);
  say({FrameKind::credit, 0, 0, cost_of(3'000), 0, {}});
  const auto next = ours_.session.next(now_);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->frame.value, 2u);
}

TEST_F(SessionTest, StreamsTakeTurnsAFrameEach) {
  greet();
  push(0, message_for(1, 1'024));
  push(1, message_for(2, 1'024));
  push(1, message_for(3, 0));
  std::vector<int> order;
  while (const auto piece = ours_.session.next(now_)) {
    order.push_back(piece->frame.stream);
    ours_.session.written(now_);
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1, 1}));
}

TEST_F(SessionTest, AnEndWithNothingToSayPings) {
  greet();
  now_ += 999ms;
  EXPECT_FALSE(ours_.session.next(now_));
  now_ += 1ms;
  const auto piece = ours_.session.next(now_);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->frame.kind, FrameKind::ping);
}

TEST_F(SessionTest, APeerThatSaysNothingIsSilent) {
  pass(4'999ms);
  EXPECT_EQ(end(), LinkEnd::none);
  pass(1ms);
  EXPECT_EQ(end(), LinkEnd::silent);
}

TEST_F(SessionTest, PartsOfAFrameAreNoSignOfLife) {
  greet();
  const auto bytes = wire_bytes({FrameKind::ping, 0, said_, 0, 0, {}});
  for (int i = 0; i < 5; ++i) {
    pass(999ms);
    ours_.read(std::span(bytes).subspan(i, 1), now_);
  }
  EXPECT_EQ(end(), LinkEnd::none);
  pass(5ms);
  EXPECT_EQ(end(), LinkEnd::silent);
}

TEST_F(SessionTest, APeerThatTakesNothingStallsThoughItTalks) {
  greet();
  push(0, message_for(1, 100));
  ASSERT_TRUE(ours_.session.next(now_));  // and nobody takes it
  for (int i = 0; i < 4; ++i) {
    pass(1s);
    say({});
  }
  EXPECT_EQ(end(), LinkEnd::none);
  pass(1s);
  EXPECT_EQ(end(), LinkEnd::stalled);
}

TEST_F(SessionTest, AMessageThatIsLeftInTheMiddleStalls) {
  greet();
  say_data(0, 1, 300, bytes_for(1, 100));
  for (int i = 0; i < 14; ++i) {
    pass(1s);
    say({});
  }
  EXPECT_EQ(end(), LinkEnd::none);
  pass(1s);
  EXPECT_EQ(end(), LinkEnd::stalled);
}

TEST_F(SessionTest, APeerThatLeavesBetweenMessagesClosed) {
  greet();
  ours_.session.peer_left(ours_.reader.is_between_frames());
  EXPECT_EQ(end(), LinkEnd::closed);
}

TEST_F(SessionTest, APeerThatLeavesInAMessageWasCutOff) {
  greet();
  say_data(0, 1, 300, bytes_for(1, 100));
  ours_.session.peer_left(ours_.reader.is_between_frames());
  EXPECT_EQ(end(), LinkEnd::cut);
}

TEST_F(SessionTest, APeerThatLeavesInAFrameWasCutOff) {
  greet();
  ours_.read(std::vector<std::byte>(1), now_);
  ours_.session.peer_left(ours_.reader.is_between_frames());
  EXPECT_EQ(end(), LinkEnd::cut);
}

TEST_F(SessionTest, TheFirstReasonStaysAndWholeMessagesCanStillBeTaken) {
  greet();
  say_data(0, 7, 50, bytes_for(7, 50));
  say_data(0, 8, 50, bytes_for(8, 50));
  ours_.session.finish(LinkEnd::closed);
  ours_.session.finish(LinkEnd::io);
  say_data(0, 9, 50, bytes_for(9, 50));
  EXPECT_EQ(end(), LinkEnd::closed);
  EXPECT_EQ(ours_.session.pop(0)->tag, 7u);
  EXPECT_EQ(ours_.session.pop(0)->tag, 8u);
  EXPECT_FALSE(ours_.session.pop(0));
  EXPECT_FALSE(ours_.session.next(now_));
}

TEST(LinkSettings, AreRefusedByFieldOutsideTheirLimits) {
  const auto field_of = [](const LinkSettings& settings) {
    const auto result = settings.check();
    return result ? std::string("none") : result.error().field;
  };
  EXPECT_EQ(field_of({}), "none");
  EXPECT_EQ(field_of({.streams = 0}), "streams");
  EXPECT_EQ(field_of({.streams = limits::link_streams_max + 1}), "streams");
  EXPECT_EQ(field_of({.window_bytes = limits::link_message_cost_bytes}), "window_bytes");
  EXPECT_EQ(field_of({.window_bytes = limits::link_window_bytes_max + 1}), "window_bytes");
  EXPECT_EQ(field_of({.frame_bytes = 0}), "frame_bytes");
  EXPECT_EQ(field_of({.frame_bytes = limits::link_frame_bytes_max + 1}), "frame_bytes");
  EXPECT_EQ(LinkSettings{}.message_bytes_max(), limits::link_message_bytes_max);
}

TEST(LinkEnd, HasANameForEachReason) {
  for (size_t i = 0; i < k_link_ends; ++i) {
    EXPECT_STRNE(to_string(static_cast<LinkEnd>(i)), "unknown");
  }
  EXPECT_STREQ(to_string(static_cast<LinkEnd>(k_link_ends)), "unknown");
}

}  // namespace
}  // namespace outrider::link
