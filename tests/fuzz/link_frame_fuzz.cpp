// What the peer of a link sends: as it comes, and with its check sums and numbers made right, so
// that what lies behind those is reached.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "base/limits.hpp"
#include "link/frame.hpp"
#include "link/session.hpp"

namespace {

using namespace outrider;
using namespace outrider::link;

uint64_t sum = 0;  // keeps the reads from being optimised away

constexpr LinkSettings k_settings{.streams = 3, .window_bytes = 4'096, .frame_bytes = 512};
constexpr TimePoint k_now{1};

void require(bool condition) {
  if (!condition) std::abort();
}

/// One end that hears all of this, takes what comes on its first stream only, and has something to
/// send itself.
class Listener {
 public:
  Listener() : session_(k_settings, k_now) {
    for (uint32_t stream = 0; stream < k_settings.streams; ++stream) {
      Message message{stream, Bytes(std::vector<std::byte>(1'000))};
      require(session_.push(stream, message));
    }
    speak();
  }

  void hear(std::span<const std::byte> bytes) {
    while (!bytes.empty() && session_.end() == LinkEnd::none) {
      const auto room = reader_.room();
      const size_t count = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), count);
      reader_.filled(count);
      bytes = bytes.subspan(count);
      while (const auto frame = reader_.next()) {
        require(frame->payload.size() <= limits::link_frame_bytes_max);
        heard_ += frame->payload.size();
        session_.received(*frame, k_now);
        check();
        take(0);
        speak();
      }
      session_.finish(reader_.end());
    }
    session_.peer_left(reader_.is_between_frames());
    for (uint32_t stream = 0; stream < k_settings.streams; ++stream) take(stream);
    require(session_.end() != LinkEnd::none && !session_.next(k_now));
    require(taken_ <= heard_);
  }

 private:
  void take(uint32_t stream) {
    while (const auto message = session_.pop(stream)) {
      require(message->bytes.size() <= k_settings.message_bytes_max());
      taken_ += message->bytes.size();
      for (const std::byte b : message->bytes.view()) sum += std::to_integer<uint8_t>(b);
    }
  }
  /// What we say is always a frame.
  void speak() {
    while (const auto piece = session_.next(k_now)) {
      Header header;
      require(decode(encode(piece->frame), header) == LinkEnd::none);
      require(header.frame.sequence == said_++);
      session_.written(k_now);
    }
  }
  void check() const {
    for (uint32_t stream = 0; stream < k_settings.streams; ++stream) {
      require(session_.incoming().held_bytes(stream) <= k_settings.window_bytes);
      require(session_.outgoing().in_flight_bytes(stream) <= k_settings.window_bytes);
    }
  }

  Session session_;
  FrameReader reader_;
  uint64_t heard_ = 0;
  uint64_t taken_ = 0;
  uint64_t said_ = 0;
};

template <class T>
T field(std::span<const std::byte> header, size_t offset) {
  T value;
  std::memcpy(&value, header.data() + offset, sizeof(value));
  return value;
}

/// The input as frames one after the other, each with its number, length and check sums put right.
std::vector<std::byte> sealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> out;
  uint64_t sequence = 0;
  while (bytes.size() >= k_header_bytes) {
    const auto header = bytes.first(k_header_bytes);
    bytes = bytes.subspan(k_header_bytes);
    const size_t length = std::min<size_t>(field<uint32_t>(header, 8), bytes.size());
    const Frame frame{
        FrameKind{field<uint8_t>(header, 5)}, field<uint8_t>(header, 6),   sequence++,
        field<uint64_t>(header, 24),          field<uint64_t>(header, 32), bytes.first(length)};
    const HeaderBytes right = encode(frame);
    out.insert(out.end(), right.begin(), right.end());
    out.insert(out.end(), frame.payload.begin(), frame.payload.end());
    bytes = bytes.subspan(length);
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  Listener().hear(bytes);
  Listener().hear(sealed(bytes));
  return 0;
}
