#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/result.hpp"
#include "link/link_end.hpp"

namespace outrider::link {

/// Bytes that nobody changes any more, and whatever keeps them alive. Copies share them.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(std::vector<std::byte> owned) {
    auto shared = std::make_shared<const std::vector<std::byte>>(std::move(owned));
    view_ = *shared;
    owner_ = std::move(shared);
  }
  /// `view` stays as it is while `owner` or a copy of it lives.
  Bytes(std::shared_ptr<const void> owner, std::span<const std::byte> view)
      : owner_(std::move(owner)), view_(view) {}

  std::span<const std::byte> view() const { return view_; }
  uint64_t size() const { return view_.size(); }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> view_;
};

/// `tag` is the users' own: which request, position or block this is.
struct Message {
  uint64_t tag = 0;
  Bytes bytes;
};

/// What both ends of a link must agree on, but for `frame_bytes`.
struct LinkSettings {
  uint32_t streams = 4;
  /// Bytes of one stream that may be on their way or wait for their reader; as many more may wait
  /// to be sent.
  uint64_t window_bytes = limits::link_window_bytes_max;
  /// Bytes of a message that this end puts into one frame, at most.
  uint32_t frame_bytes = limits::link_frame_bytes_max;

  /// Of the largest message.
  uint64_t message_bytes_max() const;
  /// Errors: invalid_argument with the field.
  Result<void> check() const;
};

/// What every implementation is made with, besides its connection.
struct LinkSetup {
  LinkSettings settings;
  std::shared_ptr<const Clock> clock;  ///< Thread-safe.
  std::shared_ptr<LinkCounters> counters;
};

/// What a message takes of its stream's window.
inline uint64_t cost_of(uint64_t message_bytes) {
  return message_bytes + limits::link_message_cost_bytes;
}

/// Moves bulk bytes between two peers: tensors and KV blocks, never control. A link has several
/// streams, each of them in order, each with a window that its reader opens by taking messages: a
/// slow reader stops its own stream and no other. What is received is what was sent, whole; what
/// was sent need not arrive: when a link ends, what was on its way is lost. Thread-safe.
///
/// Deadlines are of the clock that the link was made with and are noticed within
/// limits::link_tick_ms; with one that has passed a call does not wait.
class TensorLink {
 public:
  virtual ~TensorLink() = default;

  /// Takes a message to be sent; waits for a place in its stream's queue. Errors: invalid_argument
  /// (no such stream), too_large, overloaded (no place by the deadline), unavailable (over).
  virtual Result<void> send(uint32_t stream, Message message, TimePoint deadline) = 0;
  /// The stream's next message. Errors: invalid_argument, deadline_exceeded (none by the deadline),
  /// unavailable: the link is over, and all that had come whole was taken.
  virtual Result<Message> receive(uint32_t stream, TimePoint deadline) = 0;
  /// Ends it. Who waits is told.
  virtual void close() = 0;
  /// Why it is over, or `none`.
  virtual LinkEnd end() const = 0;
};

}  // namespace outrider::link
