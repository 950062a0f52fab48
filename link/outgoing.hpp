#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "link/frame.hpp"
#include "link/tensor_link.hpp"

namespace outrider::link {

/// One frame to write, without its sequence number, and what keeps its payload alive.
struct Piece {
  Frame frame;
  Bytes keep;
};

/// What one end has to send: a bounded queue for each stream, what credit its peer has granted, and
/// whose turn it is. A message begins when all of it fits the credit, so that it never stops half
/// way; streams that have something to send take turns, a frame each. Pure; not thread-safe.
class Outgoing {
 public:
  explicit Outgoing(const LinkSettings& settings);

  /// Takes a message of at most message_bytes_max. False, and it stays with the caller: the
  /// stream's queue is full.
  bool push(uint32_t stream, Message& message);
  /// The next frame of data; nothing: queues are empty or wait for credit.
  std::optional<Piece> next();
  /// The peer gave back credit. `none`, or `credit`: more than it took.
  LinkEnd granted(uint32_t stream, uint64_t bytes);

  /// Cost of messages that began and that the peer has not given back.
  uint64_t in_flight_bytes(uint32_t stream) const;
  /// Cost of messages that wait, or of which not every frame is out.
  uint64_t queued_bytes(uint32_t stream) const { return streams_[stream].queued; }

 private:
  struct Stream {
    uint64_t credit = 0;
    uint64_t queued = 0;
    std::deque<Message> queue;
    bool has_begun = false;  ///< The first message of the queue,
    uint64_t sent = 0;       ///< and so many of its bytes are out.
  };

  LinkSettings settings_;
  std::vector<Stream> streams_;
  uint32_t turn_ = 0;
};

}  // namespace outrider::link
