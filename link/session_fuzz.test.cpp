// Two sessions under random operations beside a twin that counts everything anew from what
// happened; and valid streams that were damaged.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.hpp"
#include "link/fixture.test.hpp"
#include "link/session.hpp"

namespace outrider::link {
namespace {

using namespace std::literals;
using testing_support::End;
using testing_support::is_genuine;
using testing_support::message_for;
using testing_support::wire_bytes;

using Wire = std::vector<std::byte>;

/// What one direction's past says. Nothing is kept but what happened.
struct Past {
  struct Item {
    uint64_t tag = 0;
    uint64_t bytes = 0;
    uint64_t sent = 0;  ///< Bytes in frames that went out,
    bool has_begun = false, is_out = false, has_come = false, is_taken = false;
  };
  struct Stream {
    std::vector<Item> items;
    uint64_t credit_out = 0;   ///< Given back by the receiver, in all,
    uint64_t credit_come = 0;  ///< and what of it the sender knows.
    uint64_t taken() const { return sum(&Item::is_taken); }
    uint64_t begun() const { return sum(&Item::has_begun); }
    uint64_t come() const { return sum(&Item::has_come); }
    uint64_t sum(bool Item::*flag) const {
      uint64_t cost = 0;
      for (const Item& item : items) cost += item.*flag ? cost_of(item.bytes) : 0;
      return cost;
    }
    uint64_t waiting() const {
      uint64_t cost = 0;
      for (const Item& item : items) cost += item.is_out ? 0 : cost_of(item.bytes);
      return cost;
    }
    /// The first message that is not out, unless credit forbids that it begins.
    Item* next(uint64_t window) {
      const auto item =
          std::find_if(items.begin(), items.end(), [](const Item& i) { return !i.is_out; });
      if (item == items.end()) return nullptr;
      const uint64_t in_flight = begun() - credit_come;
      if (!item->has_begun && in_flight + cost_of(item->bytes) > window) return nullptr;
      return &*item;
    }
  };
  std::vector<Stream> streams;
  uint32_t data_turn = 0;    ///< The stream behind the one that had the last frame,
  uint32_t credit_turn = 0;  ///< and of its receiver's last credit.
};

class Twins {
 public:
  explicit Twins(uint64_t seed) : random_(seed) {
    settings_.streams = 1 + random_.below(4);
    settings_.window_bytes = 600 + random_.below(4'000);
    settings_.frame_bytes = 1 + random_.below(500);
    for (size_t i = 0; i < 2; ++i) {
      ends_.emplace_back(settings_, 1s);
      pasts_[i].streams.resize(settings_.streams);
    }
  }

  void step() {
    const size_t end = random_.below(2);
    switch (random_.below(4)) {
      case 0:
        return push(end);
      case 1:
        return write(end);
      case 2:
        return read(end);
      default:
        return take(end, random_.below(settings_.streams));
    }
  }
  /// Everything that was sent comes, and all credit comes back.
  void drain() {
    for (int round = 0; round < 100'000 && !is_idle(); ++round) {
      for (size_t end = 0; end < 2; ++end) {
        write(end);
        read(end);
        for (uint32_t stream = 0; stream < settings_.streams; ++stream) take(end, stream);
      }
    }
    ASSERT_TRUE(is_idle());
    for (size_t end = 0; end < 2; ++end) {
      for (uint32_t stream = 0; stream < settings_.streams; ++stream) {
        EXPECT_EQ(ends_[end].session.outgoing().in_flight_bytes(stream), 0u);
      }
    }
  }
  void check() {
    for (size_t end = 0; end < 2; ++end) {
      const Session& sender = ends_[end].session;
      const Session& receiver = ends_[1 - end].session;
      ASSERT_EQ(sender.end(), LinkEnd::none) << to_string(sender.end());
      for (uint32_t i = 0; i < settings_.streams; ++i) {
        const Past::Stream& past = pasts_[end].streams[i];
        ASSERT_EQ(sender.outgoing().queued_bytes(i), past.waiting());
        ASSERT_EQ(sender.outgoing().in_flight_bytes(i), past.begun() - past.credit_come);
        ASSERT_LE(sender.outgoing().in_flight_bytes(i), settings_.window_bytes);
        ASSERT_LE(receiver.incoming().held_bytes(i), sender.outgoing().in_flight_bytes(i));
        ASSERT_GE(receiver.incoming().held_bytes(i), past.come() - past.taken());
      }
    }
  }

 private:
  void push(size_t end) {
    const uint32_t stream = random_.below(settings_.streams);
    Past::Stream& past = pasts_[end].streams[stream];
    const auto most = static_cast<uint32_t>(settings_.message_bytes_max());
    const uint64_t bytes = random_.below(1 + (random_.chance(0.5f) ? most : most / 8));
    Message message = message_for(past.items.size(), bytes);
    const bool fits = past.waiting() + cost_of(bytes) <= settings_.window_bytes;
    ASSERT_EQ(ends_[end].session.push(stream, message), fits);
    if (fits) past.items.push_back({.tag = past.items.size(), .bytes = bytes});
  }

  void write(size_t end) {
    const auto piece = ends_[end].session.next(1s);
    if (!std::exchange(has_greeted_[end], true)) {
      ASSERT_TRUE(piece && piece->frame.kind == FrameKind::hello);
    } else if (const auto stream = owed(pasts_[1 - end])) {
      ASSERT_TRUE(piece && piece->frame.kind == FrameKind::credit);
      ASSERT_EQ(piece->frame.stream, *stream);
      Past::Stream& past = pasts_[1 - end].streams[*stream];
      ASSERT_EQ(piece->frame.value, past.taken() - past.credit_out);
      past.credit_out = past.taken();
      pasts_[1 - end].credit_turn = (*stream + 1) % settings_.streams;
    } else {
      expect_data(pasts_[end], piece);
    }
    if (!piece) return;
    ends_[end].session.written(1s);
    wires_[end].push_back({piece->frame, wire_bytes(piece->frame)});
  }

  std::optional<uint32_t> owed(const Past& past) const {
    for (uint32_t i = 0; i < settings_.streams; ++i) {
      const uint32_t stream = (past.credit_turn + i) % settings_.streams;
      if (past.streams[stream].taken() > past.streams[stream].credit_out) return stream;
    }
    return std::nullopt;
  }

  void expect_data(Past& past, const std::optional<Piece>& piece) {
    for (uint32_t i = 0; i < settings_.streams; ++i) {
      const uint32_t stream = (past.data_turn + i) % settings_.streams;
      Past::Item* item = past.streams[stream].next(settings_.window_bytes);
      if (item == nullptr) continue;
      ASSERT_TRUE(piece && piece->frame.kind == FrameKind::data);
      ASSERT_EQ(piece->frame.stream, stream);
      ASSERT_EQ(piece->frame.value, item->tag);
      ASSERT_EQ(piece->frame.message_bytes, item->bytes);
      const uint64_t part = std::min<uint64_t>(settings_.frame_bytes, item->bytes - item->sent);
      ASSERT_EQ(piece->frame.payload.size(), part);
      item->has_begun = true;
      item->sent += part;
      item->is_out = item->sent == item->bytes;
      past.data_turn = (stream + 1) % settings_.streams;
      return;
    }
    ASSERT_FALSE(piece);
  }

  /// The end's next frame from its peer.
  void read(size_t end) {
    auto& wire = wires_[1 - end];
    if (wire.empty()) return;
    const Frame frame = wire.front().first;
    ends_[end].read(wire.front().second, 1s);
    wire.pop_front();
    Past& ours = pasts_[end];
    Past& peers = pasts_[1 - end];
    if (frame.kind == FrameKind::credit) {
      ours.streams[frame.stream].credit_come += frame.value;
    } else if (frame.kind == FrameKind::data) {
      Past::Item& item = peers.streams[frame.stream].items[frame.value];
      come_[1 - end][{frame.stream, frame.value}] += frame.payload.size();
      item.has_come = come_[1 - end][{frame.stream, frame.value}] == item.bytes;
    }
  }

  void take(size_t end, uint32_t stream) {
    auto& items = pasts_[1 - end].streams[stream].items;
    const auto first =
        std::find_if(items.begin(), items.end(), [](const auto& i) { return !i.is_taken; });
    const auto message = ends_[end].session.pop(stream);
    ASSERT_EQ(message.has_value(), first != items.end() && first->has_come);
    if (!message) return;
    ASSERT_EQ(message->tag, first->tag);
    ASSERT_EQ(message->bytes.size(), first->bytes);
    ASSERT_TRUE(is_genuine(*message));
    first->is_taken = true;
  }

  bool is_idle() const {
    for (size_t end = 0; end < 2; ++end) {
      if (!wires_[end].empty() || owed(pasts_[end])) return false;
      for (const Past::Stream& stream : pasts_[end].streams) {
        for (const Past::Item& item : stream.items) {
          if (!item.is_taken) return false;
        }
      }
    }
    return true;
  }

  Random random_;
  LinkSettings settings_;
  std::deque<End> ends_;
  std::array<Past, 2> pasts_;  ///< Of what each end sends.
  std::array<bool, 2> has_greeted_{};
  std::array<std::deque<std::pair<Frame, Wire>>, 2> wires_;  ///< From each end.
  std::array<std::map<std::pair<uint8_t, uint64_t>, uint64_t>, 2> come_;
};

TEST(SessionFuzz, TwoSessionsDoWhatTheirPastSays) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Twins twins(seed);
    for (int i = 0; i < 400; ++i) {
      twins.step();
      twins.check();
      if (testing::Test::HasFatalFailure()) return;
    }
    twins.drain();
    if (testing::Test::HasFatalFailure()) return;
  }
}

constexpr LinkSettings k_damaged{.streams = 3, .window_bytes = 3'000, .frame_bytes = 300};

/// The frames of one direction whose peer takes and gives back, each as it lies on the wire.
std::vector<Wire> valid_frames(Random& random) {
  End sender(k_damaged, 1s), receiver(k_damaged, 1s);
  std::vector<Wire> frames;
  std::array<uint64_t, 3> tags{};
  for (int i = 0; i < 40; ++i) {
    const uint32_t stream = random.below(3);
    Message message = message_for(tags[stream], random.below(1'500));
    if (sender.session.push(stream, message)) ++tags[stream];
    while (auto frame = sender.write(1s)) {
      receiver.read(*frame, 1s);
      frames.push_back(std::move(*frame));
    }
    const uint32_t taken = random.below(3);
    while (receiver.session.pop(taken)) {
    }
    while (const auto frame = receiver.write(1s)) sender.read(*frame, 1s);
  }
  return frames;
}

/// One change that leaves other bytes.
void damage(std::vector<Wire>& frames, Random& random) {
  const auto at = frames.begin() + random.below(static_cast<uint32_t>(frames.size()));
  const auto other = frames.begin() + random.below(static_cast<uint32_t>(frames.size()));
  switch (random.below(6)) {
    case 0: {
      const uint32_t bit = random.below(static_cast<uint32_t>(at->size() * 8));
      (*at)[bit / 8] ^= std::byte(1 << (bit % 8));
      return;
    }
    case 1:
      frames.erase(at);
      return;
    case 2:
      frames.insert(at, Wire(*other));
      return;
    case 3:
      std::swap(*at, *other);
      return;
    case 4:
      at->resize(random.below(static_cast<uint32_t>(at->size())));
      return;
    default: {
      const uint32_t place =
          random.chance(0.5f) ? 0 : random.below(static_cast<uint32_t>(at->size()));
      at->insert(at->begin() + place, 1 + random.below(100), std::byte(random.below(256)));
    }
  }
}

/// What somebody who reads at once gets of a stream.
struct Heard {
  LinkEnd end = LinkEnd::none;
  std::array<uint64_t, 3> messages{};
};

Heard hear(const std::vector<Wire>& frames, Random& random) {
  Wire all;
  for (const Wire& frame : frames) all.insert(all.end(), frame.begin(), frame.end());
  End end(k_damaged, 1s);
  Heard heard;
  for (size_t at = 0; at < all.size();) {
    // No more than a header, so that what one frame makes whole is taken before the next one.
    const size_t count = std::min<size_t>(1 + random.below(k_header_bytes), all.size() - at);
    end.read(std::span(all).subspan(at, count), 1s);
    at += count;
    for (uint32_t stream = 0; stream < 3; ++stream) {
      EXPECT_LE(end.session.incoming().held_bytes(stream), k_damaged.window_bytes);
      while (const auto message = end.session.pop(stream)) {
        EXPECT_EQ(message->tag, heard.messages[stream]++);
        EXPECT_TRUE(is_genuine(*message));
      }
    }
    while (end.write(1s)) {  // credit
    }
  }
  end.session.peer_left(end.reader.is_between_frames());
  heard.end = end.session.end();
  return heard;
}

TEST(SessionFuzz, DamagedStreamsEndTheLinkAndChangeNoMessage) {
  std::array<uint64_t, k_link_ends> ended{};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    auto frames = valid_frames(random);
    const Heard whole = hear(frames, random);
    ASSERT_EQ(whole.end, LinkEnd::closed) << to_string(whole.end);
    damage(frames, random);
    const Heard damaged = hear(frames, random);
    ++ended[static_cast<size_t>(damaged.end)];
    for (size_t stream = 0; stream < 3; ++stream) {
      ASSERT_LE(damaged.messages[stream], whole.messages[stream]);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(ended[static_cast<size_t>(LinkEnd::checksum)], 0u);
  EXPECT_GT(ended[static_cast<size_t>(LinkEnd::format)], 0u);
  EXPECT_GT(ended[static_cast<size_t>(LinkEnd::sequence)], 0u);
  // The last frame was cut off, or a frame changed places with itself.
  EXPECT_LT(ended[static_cast<size_t>(LinkEnd::closed)], 10u);
}

}  // namespace
}  // namespace outrider::link
