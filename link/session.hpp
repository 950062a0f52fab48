#pragma once

#include <optional>

#include "base/clock.hpp"
#include "link/frame.hpp"
#include "link/incoming.hpp"
#include "link/outgoing.hpp"
#include "link/tensor_link.hpp"

namespace outrider::link {

/// One end of a link without its socket: what to write next, what a frame means, when it is over.
/// Its owner writes each piece before it asks for another, and says what time it is. Once over it
/// stays over, for its first reason; whole messages can still be taken. Pure; not thread-safe.
class Session {
 public:
  Session(const LinkSettings& settings, TimePoint now);

  /// As Outgoing::push and Incoming::pop.
  bool push(uint32_t stream, Message& message) { return outgoing_.push(stream, message); }
  std::optional<Message> pop(uint32_t stream) { return incoming_.pop(stream); }

  /// What to write now, if anything: the hello, credit, data, a ping.
  std::optional<Piece> next(TimePoint now);
  /// All of it was taken from us.
  void written(TimePoint now);
  /// The peer's next frame.
  void received(const Frame& frame, TimePoint now);
  /// The peer will say no more.
  void peer_left(bool is_between_frames);
  /// Looks at the deadlines; after what had come was received.
  void tick(TimePoint now);
  void finish(LinkEnd reason);

  LinkEnd end() const { return end_; }
  const Outgoing& outgoing() const { return outgoing_; }
  const Incoming& incoming() const { return incoming_; }

 private:
  LinkEnd meaning_of(const Frame& frame, TimePoint now);
  std::optional<Piece> choose(TimePoint now);

  LinkSettings settings_;
  Outgoing outgoing_;
  Incoming incoming_;
  LinkEnd end_ = LinkEnd::none;
  bool has_greeted_ = false;  ///< We.
  bool was_greeted_ = false;  ///< By the peer.
  bool is_writing_ = false;   ///< A piece is out and not yet written.
  uint64_t sequence_ = 0;     ///< Of our next frame.
  TimePoint heard_;           ///< The peer's last frame.
  TimePoint spoke_;           ///< Our last one was written, or begun.
};

}  // namespace outrider::link
