#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "link/frame.hpp"
#include "link/owned_fd.hpp"
#include "link/session.hpp"
#include "link/tcp_link.hpp"

/// What the tests of this folder share: messages whose bytes follow from their tag and size, ends
/// without sockets, and pairs of connected ones.
namespace outrider::link::testing_support {

/// Moves when told; the links' threads read it.
class SharedClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(ns_.load()); }
  void advance(Duration by) { ns_ += by.count(); }

 private:
  std::atomic<int64_t> ns_{1'000'000'000};
};

inline std::vector<std::byte> bytes_for(uint64_t tag, size_t size) {
  std::vector<std::byte> bytes(size);
  uint64_t state = (tag + 1) * 0x9E3779B97F4A7C15u + size;
  for (size_t at = 0; at < size; at += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state ^ (state >> 29);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), size - at));
  }
  return bytes;
}

inline Message message_for(uint64_t tag, size_t size) {
  return {tag, Bytes(bytes_for(tag, size))};
}

/// True of what message_for made, and of nothing else.
inline bool is_genuine(const Message& message) {
  const auto wanted = bytes_for(message.tag, message.bytes.size());
  const auto got = message.bytes.view();
  return std::equal(got.begin(), got.end(), wanted.begin(), wanted.end());
}

/// As it lies on the wire.
inline std::vector<std::byte> wire_bytes(const Frame& frame) {
  const HeaderBytes header = encode(frame);
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  return bytes;
}

/// One end in virtual time: a session and the reader of what its peer sends.
struct End {
  End(const LinkSettings& settings, TimePoint now) : session(settings, now) {}

  /// The next frame to write, as written at once.
  std::optional<std::vector<std::byte>> write(TimePoint now) {
    const auto piece = session.next(now);
    if (!piece) return std::nullopt;
    session.written(now);
    return wire_bytes(piece->frame);
  }
  void read(std::span<const std::byte> bytes, TimePoint now) {
    while (!bytes.empty() && session.end() == LinkEnd::none) {
      const auto room = reader.room();
      const size_t count = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), count);
      reader.filled(count);
      bytes = bytes.subspan(count);
      while (const auto frame = reader.next()) session.received(*frame, now);
      session.finish(reader.end());
    }
  }

  Session session;
  FrameReader reader;
};

using FdPair = std::pair<OwnedFd, OwnedFd>;

inline FdPair unix_pair() {
  int ends[2] = {};
  OUTRIDER_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {OwnedFd(ends[0]), OwnedFd(ends[1])};
}

inline FdPair loopback_pair() {
  OwnedFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  OwnedFd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  OUTRIDER_CHECK(::bind(listener.get(), raw, size) == 0 && ::listen(listener.get(), 1) == 0);
  OUTRIDER_CHECK(::getsockname(listener.get(), raw, &size) == 0);
  OUTRIDER_CHECK(::connect(near.get(), raw, size) == 0);
  OwnedFd far(::accept(listener.get(), nullptr, nullptr));
  OUTRIDER_CHECK(far.get() >= 0);
  return {std::move(near), std::move(far)};
}

/// Two connected links that share a clock and counters.
struct LinkPair {
  std::shared_ptr<TensorLink> a;
  std::shared_ptr<TensorLink> b;
};

inline std::unique_ptr<TensorLink> open_tcp(OwnedFd fd, const LinkSetup& setup) {
  auto link = TcpLink::open(std::move(fd), setup);
  OUTRIDER_CHECK(link.ok(), link.error().message);
  return std::move(*link);
}

inline LinkPair tcp_pair(FdPair fds, const LinkSetup& setup) {
  return {open_tcp(std::move(fds.first), setup), open_tcp(std::move(fds.second), setup)};
}

}  // namespace outrider::link::testing_support
