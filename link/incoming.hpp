#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "link/frame.hpp"
#include "link/tensor_link.hpp"

namespace outrider::link {

/// What one end receives: messages that are coming together, one at a time in each stream, whole
/// ones that wait for their reader, and the credit to give back for those that were taken. Of each
/// stream, credit + owed + held is the window, always. Pure; not thread-safe.
class Incoming {
 public:
  explicit Incoming(const LinkSettings& settings);

  /// A frame of data. `none`, or why its sender must go: format, oversized, credit, message.
  LinkEnd take(const Frame& frame, TimePoint now);
  /// The stream's next whole message.
  std::optional<Message> pop(uint32_t stream);

  struct Credit {
    uint8_t stream = 0;
    uint64_t bytes = 0;
  };
  /// Credit that is owed to a stream, and is so no more.
  std::optional<Credit> next_credit();

  /// The frame after which a message has waited longest for its next one.
  std::optional<TimePoint> oldest_pause() const;
  /// Cost of messages that began and were not taken.
  uint64_t held_bytes(uint32_t stream) const;

 private:
  struct Stream {
    uint64_t credit = 0;
    uint64_t owed = 0;
    std::deque<Message> whole;
    bool has_begun = false;  ///< A message, of which `part` is here.
    uint64_t tag = 0;
    uint64_t message_bytes = 0;
    std::vector<std::byte> part;
    TimePoint since{};  ///< Its last frame.
  };

  LinkSettings settings_;
  std::vector<Stream> streams_;
  uint32_t turn_ = 0;
};

}  // namespace outrider::link
