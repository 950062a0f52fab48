#include "link/incoming.hpp"

#include <utility>

#include "base/check.hpp"

namespace outrider::link {

Incoming::Incoming(const LinkSettings& settings) : settings_(settings) {
  streams_.resize(settings.streams);
  for (Stream& stream : streams_) stream.credit = settings.window_bytes;
}

LinkEnd Incoming::take(const Frame& frame, TimePoint now) {
  if (frame.stream >= streams_.size()) return LinkEnd::format;
  Stream& s = streams_[frame.stream];
  if (!s.has_begun) {
    if (frame.message_bytes > settings_.message_bytes_max()) return LinkEnd::oversized;
    const uint64_t cost = cost_of(frame.message_bytes);
    if (cost > s.credit) return LinkEnd::credit;
    s.credit -= cost;
    s.has_begun = true;
    s.tag = frame.value;
    s.message_bytes = frame.message_bytes;
    s.part.reserve(frame.message_bytes);
  } else if (frame.value != s.tag || frame.message_bytes != s.message_bytes) {
    return LinkEnd::message;
  }
  // Only an empty message has a frame without bytes.
  if (frame.payload.empty() && s.message_bytes > 0) return LinkEnd::message;
  if (frame.payload.size() > s.message_bytes - s.part.size()) return LinkEnd::message;
  s.part.insert(s.part.end(), frame.payload.begin(), frame.payload.end());
  s.since = now;
  if (s.part.size() == s.message_bytes) {
    s.whole.push_back({s.tag, Bytes(std::exchange(s.part, {}))});
    s.has_begun = false;
  }
  return LinkEnd::none;
}

std::optional<Message> Incoming::pop(uint32_t stream) {
  OUTRIDER_CHECK(stream < streams_.size(), stream);
  Stream& s = streams_[stream];
  if (s.whole.empty()) return std::nullopt;
  Message message = std::move(s.whole.front());
  s.whole.pop_front();
  s.owed += cost_of(message.bytes.size());
  return message;
}

std::optional<Incoming::Credit> Incoming::next_credit() {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto index = static_cast<uint32_t>((turn_ + i) % streams_.size());
    Stream& s = streams_[index];
    if (s.owed == 0) continue;
    const Credit credit{static_cast<uint8_t>(index), std::exchange(s.owed, 0)};
    s.credit += credit.bytes;
    turn_ = (index + 1) % settings_.streams;
    return credit;
  }
  return std::nullopt;
}

std::optional<TimePoint> Incoming::oldest_pause() const {
  std::optional<TimePoint> oldest;
  for (const Stream& s : streams_) {
    if (s.has_begun && (!oldest || s.since < *oldest)) oldest = s.since;
  }
  return oldest;
}

uint64_t Incoming::held_bytes(uint32_t stream) const {
  const Stream& s = streams_[stream];
  return settings_.window_bytes - s.credit - s.owed;
}

}  // namespace outrider::link
