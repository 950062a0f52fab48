#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace outrider::link {

/// Why a link is over. Nothing mends it: who needs another connects again.
enum class LinkEnd : uint8_t {
  none = 0,   ///< It is not.
  closed,     ///< Either end closed it, the peer in the middle of nothing.
  cut,        ///< The peer went in the middle of a frame or a message, or reset the connection.
  format,     ///< The peer sent what is no frame, or no frame for now.
  version,    ///< It speaks another version of this protocol.
  settings,   ///< It has other streams, or windows of another size.
  oversized,  ///< A frame or a message larger than there may be.
  checksum,   ///< A frame that is not what was sent.
  sequence,   ///< A frame is missing, came again or in another order.
  message,    ///< A frame that does not go on with the message that its stream is at.
  credit,     ///< More than was granted, or more given back than was taken.
  silent,     ///< No whole frame came for limits::link_silence_ms.
  stalled,    ///< It took no frame for as long, or left a message for limits::link_pause_ms.
  io,         ///< The operating system refused.
  device,     ///< NCCL or its GPU reported an error; or the peer's did, and it went.
};
inline constexpr size_t k_link_ends = 15;
const char* to_string(LinkEnd end);

/// Sums over all links that share them. Thread-safe.
struct LinkCounters {
  std::array<std::atomic<uint64_t>, k_link_ends> ended{};  ///< Links, by LinkEnd.
  std::atomic<uint64_t> messages_sent{0};                  ///< Taken by a link to be sent.
  std::atomic<uint64_t> bytes_sent{0};                     ///< Of those messages.
  std::atomic<uint64_t> messages_received{0};              ///< Handed to their reader.
  std::atomic<uint64_t> bytes_received{0};                 ///< Of those messages.
};

}  // namespace outrider::link
