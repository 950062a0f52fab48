#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace outrider::cluster {

/// Looks at one direction of a CAF connection (its wire format, BASP) before CAF does, which
/// believes any length of up to 4 GiB and allocates it.
class FrameCheck {
 public:
  /// Of a frame's head: its operation in byte 0, the length of what follows it in bytes 4 to 7,
  /// big-endian; then numbers.
  static constexpr size_t k_head_bytes = 32;
  static constexpr uint8_t k_operations = 7;

  /// The next bytes of the stream. False: a frame that no member sends (unknown operation, over
  /// limits::cluster_frame_bytes_max); these bytes, and all that follow, are not to be passed on.
  bool feed(std::span<const uint8_t> bytes);

 private:
  std::array<uint8_t, k_head_bytes> head_{};
  size_t head_filled_ = 0;
  size_t payload_left_ = 0;
};

}  // namespace outrider::cluster
