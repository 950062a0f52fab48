#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/clock.hpp"
#include "link/session.hpp"
#include "link/tensor_link.hpp"

namespace outrider::link {

/// A session that callers share with the thread of their link: they queue, take and wait, it hears
/// the peer and writes. Counts what passes and why it ends. Thread-safe.
class SharedSession {
 public:
  explicit SharedSession(LinkSetup setup);

  /// As TensorLink's; the thread has something to do after each that succeeds.
  Result<void> send(uint32_t stream, Message message, TimePoint deadline);
  Result<Message> receive(uint32_t stream, TimePoint deadline);
  LinkEnd end() const;

  /// As Session's.
  std::optional<Piece> next();
  void written();
  void received(const Frame& frame);
  void peer_left(bool is_between_frames);
  void finish(LinkEnd reason);
  /// After it has looked at the deadlines.
  bool is_over(TimePoint now);

  TimePoint now() const { return setup_.clock->now(); }

 private:
  /// After each change: counts the end, tells who waits.
  void changed();
  /// False: the deadline has passed.
  bool wait(std::unique_lock<std::mutex>& lock, TimePoint deadline);

  const LinkSetup setup_;
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  Session session_;
  bool is_counted_ = false;  ///< Its end.
};

}  // namespace outrider::link
