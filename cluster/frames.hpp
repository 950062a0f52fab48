#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/limits.hpp"

namespace outrider::cluster {

/// Reads one direction of a CAF connection (its wire format, BASP) before CAF does, which believes
/// any length, any type and any order, and allocates, recurses or ends by it. Only whole frames go
/// on, and only those that members send: messages of `schema/`, and the few with which CAF's own
/// nodes get to know each other.
class FrameReader {
 public:
  /// Of a frame's head: its operation in byte 0, flags in byte 3, the length of what follows in
  /// bytes 4 to 7, an id of the message, its sender and its receiver in 8 each; big-endian.
  static constexpr size_t k_head_bytes = 32;
  static constexpr size_t k_frame_bytes_max = k_head_bytes + limits::cluster_frame_bytes_max;

  /// `server`: the bytes are those of a server, which greets first.
  explicit FrameReader(bool server) : server_(server) {}

  /// The next bytes of the stream. False: no member sends this; nothing more may be passed on.
  bool take(std::span<const uint8_t> bytes);
  /// Whole frames that were not passed on yet.
  std::span<const uint8_t> ready() const { return {buffer_.data(), good_}; }
  void passed();
  /// Of a refusal, for people.
  const std::string& why() const { return why_; }

 private:
  bool is_good(std::span<const uint8_t> frame);

  bool server_;
  bool greeted_ = false;
  std::vector<uint8_t> buffer_;
  std::string why_;
  size_t good_ = 0;  ///< Bytes of it that are whole, good frames.
};

}  // namespace outrider::cluster
