#pragma once

#include <kj/async.h>

#include <memory>

#include "gateway/event_queue.hpp"

namespace outrider::gateway {

/// The KJ end of an EventQueue, and the ClientStreams that feed it. Created and read on the KJ
/// thread; the streams may be pushed to from any thread and may outlive the channel.
class TokenChannel {
 public:
  explicit TokenChannel(uint32_t sources);
  ~TokenChannel();
  TokenChannel(const TokenChannel&) = delete;
  TokenChannel& operator=(const TokenChannel&) = delete;

  std::shared_ptr<schema::ClientStream> stream(uint32_t source);

  /// Resolves when an event waits. Carries none, so that dropping it for a timer loses none.
  kj::Promise<void> ready();
  /// What waits, perhaps nothing.
  EventQueue::Batch take() { return queue_->take(); }
  void wake() { queue_->wake(); }

 private:
  std::shared_ptr<EventQueue> queue_;
};

}  // namespace outrider::gateway
