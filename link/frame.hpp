#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "link/link_end.hpp"

/// A link's bytes: frames, each a header and, of data, a part of a message. Little-endian:
///
///      0  "ORLK"         4  version u8     5  kind u8       6  stream u8     7  0 u8
///      8  payload u32   12  0 u32         16  sequence u64 24  value u64    32  message u64
///     40  XXH3-128 of the payload         56  XXH3-64 of the 56 bytes before
///
/// Each direction counts its frames: one that is lost, repeated or moved breaks the sequence. The
/// check sums find damage, not forgery: who may speak at all was settled before, by the gate.
namespace outrider::link {

inline constexpr uint8_t k_frame_version = 1;
inline constexpr size_t k_header_bytes = 64;
using HeaderBytes = std::array<std::byte, k_header_bytes>;

enum class FrameKind : uint8_t {
  hello = 1,  ///< First, once: `stream` is the number of streams, `value` the window in bytes.
  data,       ///< The next part of the stream's message: `value` its tag, `message_bytes` its size.
  credit,     ///< `value` bytes of the stream's window, given back.
  ping,       ///< Nothing else was to say for limits::link_ping_ms.
};

struct Frame {
  FrameKind kind = FrameKind::ping;
  uint8_t stream = 0;
  uint64_t sequence = 0;  ///< Frames of this direction before it.
  uint64_t value = 0;
  uint64_t message_bytes = 0;
  std::span<const std::byte> payload;
};

/// The header of a frame. Reads all of the payload, for its check sum.
HeaderBytes encode(const Frame& frame);

/// A header that proved itself; its frame has no payload yet.
struct Header {
  Frame frame;
  uint32_t payload_bytes = 0;
  std::array<uint64_t, 2> payload_check{};
};
/// `none`, or what is wrong with it: format, version, checksum, oversized.
LinkEnd decode(std::span<const std::byte, k_header_bytes> bytes, Header& header);

/// Finds the frames of one direction in its bytes, however they are cut, in a buffer for the
/// largest frame that it allocates once. Not thread-safe.
class FrameReader {
 public:
  FrameReader();

  /// Where the next bytes of the stream go; never empty. Ends the validity of payloads.
  std::span<std::byte> room();
  /// So many of them were put there.
  void filled(size_t bytes);
  /// The next frame, if it is whole, good and in turn; its payload points into the buffer.
  std::optional<Frame> next();

  /// What was wrong with the stream; nothing comes after it.
  LinkEnd end() const { return end_; }
  /// No part of a frame is there.
  bool is_between_frames() const { return begin_ == size_; }

 private:
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;  ///< Of the bytes that are in no frame yet,
  size_t size_ = 0;   ///< and their end.
  uint64_t sequence_ = 0;
  LinkEnd end_ = LinkEnd::none;
};

}  // namespace outrider::link
