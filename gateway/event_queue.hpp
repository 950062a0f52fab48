#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "schema/client_stream.hpp"

namespace outrider::gateway {

/// Wakes a reader; called once, from any thread, without a lock held.
class Waker {
 public:
  virtual ~Waker() = default;
  virtual void wake() = 0;
};

/// Events of one client's request on their way from its sessions (any thread) to its connection
/// (one thread). A request with several prompts has several sessions: each is a source, bounded on
/// its own. No KJ and no CAF in here, so that thread sanitizer can judge it.
class EventQueue {
 public:
  struct Tagged {
    uint32_t source = 0;
    schema::StreamEvent event;
  };
  struct Batch {
    std::vector<Tagged> events;
    std::vector<uint32_t> drained;  ///< Sources that were full and may go on.
  };

  explicit EventQueue(uint32_t sources);

  /// Any thread.
  schema::ClientStream::Level push(uint32_t source, schema::StreamEvent event);

  /// Reader: everything that has arrived, in order.
  Batch take();
  /// Reader: keeps the waker for the next event; gives it back if one is there already.
  std::unique_ptr<Waker> arm(std::unique_ptr<Waker> waker);
  /// Any thread: wakes the reader although nothing has come.
  void wake();
  /// Reader: it has left. Later pushes answer `gone` and are dropped.
  void close();

 private:
  std::mutex mutex_;
  std::deque<Tagged> events_;
  std::vector<uint32_t> queued_;  ///< [sources] events in `events_`
  std::vector<bool> full_;        ///< [sources] was told so, and not drained since
  bool closed_ = false;
  std::unique_ptr<Waker> waker_;
};

}  // namespace outrider::gateway
