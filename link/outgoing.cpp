#include "link/outgoing.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace outrider::link {

Outgoing::Outgoing(const LinkSettings& settings) : settings_(settings) {
  streams_.resize(settings.streams);
  for (Stream& stream : streams_) stream.credit = settings.window_bytes;
}

bool Outgoing::push(uint32_t stream, Message& message) {
  OUTRIDER_CHECK(stream < streams_.size(), stream);
  OUTRIDER_CHECK(message.bytes.size() <= settings_.message_bytes_max(), message.bytes.size());
  Stream& s = streams_[stream];
  const uint64_t cost = cost_of(message.bytes.size());
  if (cost > settings_.window_bytes - s.queued) return false;
  s.queued += cost;
  s.queue.push_back(std::move(message));
  return true;
}

std::optional<Piece> Outgoing::next() {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto index = static_cast<uint32_t>((turn_ + i) % streams_.size());
    Stream& s = streams_[index];
    if (s.queue.empty()) continue;
    Message& message = s.queue.front();
    const uint64_t cost = cost_of(message.bytes.size());
    if (!s.has_begun) {
      if (cost > s.credit) continue;
      s.credit -= cost;
      s.has_begun = true;
      s.sent = 0;
    }
    const uint64_t bytes = std::min<uint64_t>(settings_.frame_bytes, message.bytes.size() - s.sent);
    Piece piece;
    piece.frame.kind = FrameKind::data;
    piece.frame.stream = static_cast<uint8_t>(index);
    piece.frame.value = message.tag;
    piece.frame.message_bytes = message.bytes.size();
    piece.frame.payload = message.bytes.view().subspan(s.sent, bytes);
    piece.keep = message.bytes;
    s.sent += bytes;
    if (s.sent == message.bytes.size()) {
      s.queued -= cost;
      s.queue.pop_front();
      s.has_begun = false;
    }
    turn_ = (index + 1) % settings_.streams;
    return piece;
  }
  return std::nullopt;
}

LinkEnd Outgoing::granted(uint32_t stream, uint64_t bytes) {
  if (stream >= streams_.size() || bytes == 0) return LinkEnd::format;
  Stream& s = streams_[stream];
  // A message of which frames are still to come cannot have been taken.
  const uint64_t sending = s.has_begun ? cost_of(s.queue.front().bytes.size()) : 0;
  if (bytes > settings_.window_bytes - s.credit - sending) return LinkEnd::credit;
  s.credit += bytes;
  return LinkEnd::none;
}

uint64_t Outgoing::in_flight_bytes(uint32_t stream) const {
  return settings_.window_bytes - streams_[stream].credit;
}

}  // namespace outrider::link
