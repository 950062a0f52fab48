#include "link/tcp_link.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <span>
#include <thread>
#include <vector>

#include "base/philox.hpp"
#include "link/fixture.test.hpp"

namespace outrider::link {
namespace {

using namespace std::literals;
using testing_support::bytes_for;
using testing_support::FdPair;
using testing_support::is_genuine;
using testing_support::message_for;
using testing_support::SharedClock;
using testing_support::unix_pair;
using testing_support::wire_bytes;

constexpr LinkSettings k_pair_settings{
    .streams = 2, .window_bytes = 64 << 10, .frame_bytes = 2 << 10};
constexpr TimePoint k_forever = TimePoint::max();

/// All of them; false: the other end is gone.
bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

/// A link whose peer is a plain socket.
class TcpLinkTest : public testing::Test {
 protected:
  TcpLinkTest() {
    FdPair fds = unix_pair();
    peer_ = std::move(fds.second);
    link_ = testing_support::open_tcp(std::move(fds.first), setup());
  }
  LinkSetup setup() const { return {k_pair_settings, clock_, counters_}; }
  void say(Frame frame) {
    frame.sequence = said_++;
    EXPECT_TRUE(write_all(peer_.get(), wire_bytes(frame)));
  }
  void greet() {
    say({FrameKind::hello, k_pair_settings.streams, 0, k_pair_settings.window_bytes, 0, {}});
  }
  /// Waits for the link's end.
  void expect_end(LinkEnd reason) {
    EXPECT_EQ(link_->receive(0, k_forever).error().code, ErrorCode::unavailable);
    EXPECT_EQ(link_->end(), reason) << to_string(link_->end());
    for (size_t i = 0; i < k_link_ends; ++i) {
      EXPECT_EQ(counters_->ended[i], i == static_cast<size_t>(reason) ? 1u : 0u) << i;
    }
  }
  /// What the link says until it is over.
  void expect_hung_up() {
    std::array<char, 4096> bytes{};
    while (::read(peer_.get(), bytes.data(), bytes.size()) > 0) {
    }
  }

  std::shared_ptr<SharedClock> clock_ = std::make_shared<SharedClock>();
  std::shared_ptr<LinkCounters> counters_ = std::make_shared<LinkCounters>();
  OwnedFd peer_;
  std::unique_ptr<TensorLink> link_;
  uint64_t said_ = 0;
};

TEST_F(TcpLinkTest, GarbageEndsItAndIsCounted) {
  EXPECT_TRUE(write_all(peer_.get(), bytes_for(1, 1'000)));
  expect_end(LinkEnd::format);
  expect_hung_up();
}

TEST_F(TcpLinkTest, AFrameThatIsNotWhatWasSentEndsItAndIsCounted) {
  greet();
  const auto payload = bytes_for(1, 100);
  auto bytes = wire_bytes({FrameKind::data, 0, 1, 1, 100, payload});
  bytes.back() ^= std::byte{1};
  EXPECT_TRUE(write_all(peer_.get(), bytes));
  expect_end(LinkEnd::checksum);
  expect_hung_up();
}

TEST_F(TcpLinkTest, AFrameThatComesAgainEndsItAndIsCounted) {
  greet();
  said_ = 0;
  greet();
  expect_end(LinkEnd::sequence);
}

TEST_F(TcpLinkTest, AnotherVersionEndsItAndIsCounted) {
  auto bytes = wire_bytes({});
  bytes[4] = std::byte{k_frame_version + 1};
  EXPECT_TRUE(write_all(peer_.get(), bytes));
  expect_end(LinkEnd::version);
}

TEST_F(TcpLinkTest, APeerThatIsKilledInAMessageLeavesNothingOfIt) {
  greet();
  const auto bytes = bytes_for(2, 1'000);
  say({FrameKind::data, 0, 0, 1, 1'000, std::span(bytes).first(500)});
  peer_ = OwnedFd();
  expect_end(LinkEnd::cut);
}

TEST_F(TcpLinkTest, WhatCameBeforeThePeerLeftIsHandedOut) {
  greet();
  const auto bytes = bytes_for(3, 500);
  say({FrameKind::data, 0, 0, 3, 500, bytes});
  peer_ = OwnedFd();
  const auto message = link_->receive(0, k_forever);
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_TRUE(is_genuine(*message));
  EXPECT_EQ(link_->receive(0, k_forever).error().code, ErrorCode::unavailable);
}

TEST_F(TcpLinkTest, APeerThatSaysNothingIsGivenUpWhenItsTimeIsOver) {
  auto waiting = std::async(std::launch::async, [&] { return link_->receive(0, k_forever); });
  clock_->advance(std::chrono::milliseconds(limits::link_silence_ms));
  EXPECT_EQ(waiting.get().error().code, ErrorCode::unavailable);
  expect_end(LinkEnd::silent);
}

TEST_F(TcpLinkTest, APeerThatReadsNothingHoldsUpItsOwnLinkForSoLongOnly) {
  greet();
  // The socket takes some, then nothing: the peer neither reads nor gives back.
  uint64_t taken = 0;
  for (int i = 0; i < 1'000; ++i) {
    for (uint32_t stream = 0; stream < k_pair_settings.streams; ++stream) {
      if (link_->send(stream, message_for(taken, 10'000), TimePoint{0})) ++taken;
    }
  }
  EXPECT_LE(taken * cost_of(10'000), 2 * k_pair_settings.streams * k_pair_settings.window_bytes);
  auto sender = std::async(std::launch::async, [&] {
    while (true) {
      const auto sent = link_->send(0, message_for(0, 10'000), k_forever);
      if (!sent) return sent.error().code;
    }
  });
  // Once may be before the link's thread has begun to write.
  do {
    clock_->advance(std::chrono::milliseconds(limits::link_silence_ms));
  } while (sender.wait_for(20ms) != std::future_status::ready);
  EXPECT_EQ(sender.get(), ErrorCode::unavailable);
  EXPECT_TRUE(link_->end() == LinkEnd::silent || link_->end() == LinkEnd::stalled);
}

TEST_F(TcpLinkTest, AnIdleLinkPingsByItsClock) {
  greet();
  FrameReader reader;
  std::vector<FrameKind> kinds;
  while (kinds.size() < 2) {
    // Its last frame may just have been written: time passes until the next one comes.
    say({});
    clock_->advance(std::chrono::milliseconds(limits::link_ping_ms));
    pollfd polled{peer_.get(), POLLIN, 0};
    if (::poll(&polled, 1, 20) == 0) continue;
    const auto room = reader.room();
    const ssize_t count = ::read(peer_.get(), room.data(), room.size());
    ASSERT_GT(count, 0) << to_string(link_->end());
    reader.filled(static_cast<size_t>(count));
    while (const auto frame = reader.next()) kinds.push_back(frame->kind);
  }
  EXPECT_EQ(kinds[0], FrameKind::hello);
  EXPECT_EQ(kinds[1], FrameKind::ping);
}

TEST_F(TcpLinkTest, WhatIsNoStreamSocketIsRefused) {
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const OwnedFd writer(ends[1]);
  const auto link = TcpLink::open(OwnedFd(ends[0]), setup());
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().field, "socket");
}

TEST_F(TcpLinkTest, ASocketThatIsNotConnectedEndsItByTheSystemsRefusal) {
  link_.reset();
  counters_ = std::make_shared<LinkCounters>();
  link_ = testing_support::open_tcp(OwnedFd(::socket(AF_INET, SOCK_STREAM, 0)), setup());
  expect_end(LinkEnd::io);
}

TEST_F(TcpLinkTest, SettingsOutsideTheLimitsAreRefused) {
  LinkSetup wrong = setup();
  wrong.settings.streams = 0;
  const auto link = TcpLink::open(unix_pair().first, wrong);
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().field, "streams");
}

/// Carries bytes between two sockets both ways until one of them ends, and flips one bit of what
/// goes from the first to the second.
void pump(OwnedFd first, OwnedFd second, uint64_t flipped_bit) {
  std::vector<std::byte> bytes(1'000);
  uint64_t passed = 0;
  std::array<pollfd, 2> polled{pollfd{first.get(), POLLIN, 0}, pollfd{second.get(), POLLIN, 0}};
  while (true) {
    ::poll(polled.data(), polled.size(), -1);
    for (size_t from = 0; from < 2; ++from) {
      if (polled[from].revents == 0) continue;
      const ssize_t count = ::recv(polled[from].fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count <= 0) return;
      const auto size = static_cast<uint64_t>(count);
      if (from == 0 && flipped_bit / 8 >= passed && flipped_bit / 8 < passed + size) {
        bytes[flipped_bit / 8 - passed] ^= std::byte(1 << (flipped_bit % 8));
      }
      if (from == 0) passed += size;
      if (!write_all(polled[1 - from].fd, std::span(bytes).first(size))) return;
    }
  }
}

TEST(TcpLink, ABitThatFlipsOnTheWireEndsTheLinkAndChangesNoMessage) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    auto clock = std::make_shared<SharedClock>();
    auto counters = std::make_shared<LinkCounters>();
    const LinkSetup setup{k_pair_settings, clock, counters};
    FdPair near = unix_pair(), far = unix_pair();
    std::thread wire(pump, std::move(near.second), std::move(far.second),
                     random.below(8 * 200'000));
    {
      const auto a = testing_support::open_tcp(std::move(near.first), setup);
      const auto b = testing_support::open_tcp(std::move(far.first), setup);
      std::thread sender([&] {
        for (uint64_t tag = 0; a->send(0, message_for(tag, 5'000), k_forever); ++tag) {
        }
      });
      uint64_t received = 0;
      while (true) {
        const auto message = b->receive(0, k_forever);
        if (!message) break;
        EXPECT_EQ(message->tag, received++) << "seed " << seed;
        EXPECT_TRUE(is_genuine(*message)) << "seed " << seed;
      }
      EXPECT_LT(received, 41u) << "seed " << seed;
      const LinkEnd end = b->end();
      EXPECT_TRUE(end == LinkEnd::checksum || end == LinkEnd::format || end == LinkEnd::version)
          << "seed " << seed << ": " << to_string(end);
      sender.join();
    }
    wire.join();
  }
}

}  // namespace
}  // namespace outrider::link
