#include "link/shared_session.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/limits.hpp"

namespace outrider::link {
namespace {

constexpr Duration k_tick = std::chrono::milliseconds(limits::link_tick_ms);

Error over(LinkEnd end) {
  return fail(ErrorCode::unavailable, std::string("the link is over: ") + to_string(end));
}

Error no_stream(uint32_t stream, uint32_t streams) {
  return fail(ErrorCode::invalid_argument,
              "stream " + std::to_string(stream) + " of a link with " + std::to_string(streams),
              "stream");
}

}  // namespace

SharedSession::SharedSession(LinkSetup setup)
    : setup_(std::move(setup)), session_(setup_.settings, setup_.clock->now()) {}

Result<void> SharedSession::send(uint32_t stream, Message message, TimePoint deadline) {
  const LinkSettings& settings = setup_.settings;
  if (stream >= settings.streams) return no_stream(stream, settings.streams);
  const uint64_t bytes = message.bytes.size();
  if (bytes > settings.message_bytes_max()) {
    return fail(ErrorCode::too_large, "a message of " + std::to_string(bytes) + " bytes; at most " +
                                          std::to_string(settings.message_bytes_max()));
  }
  {
    std::unique_lock lock(mutex_);
    while (true) {
      if (session_.end() != LinkEnd::none) return over(session_.end());
      if (session_.push(stream, message)) break;
      if (!wait(lock, deadline)) {
        return fail(ErrorCode::overloaded,
                    "stream " + std::to_string(stream) + " of the link takes no message now");
      }
    }
  }
  setup_.counters->messages_sent += 1;
  setup_.counters->bytes_sent += bytes;
  return {};
}

Result<Message> SharedSession::receive(uint32_t stream, TimePoint deadline) {
  if (stream >= setup_.settings.streams) return no_stream(stream, setup_.settings.streams);
  std::optional<Message> message;
  {
    std::unique_lock lock(mutex_);
    while (true) {
      message = session_.pop(stream);
      if (message) break;
      if (session_.end() != LinkEnd::none) return over(session_.end());
      if (!wait(lock, deadline)) {
        return fail(ErrorCode::deadline_exceeded,
                    "no message on stream " + std::to_string(stream) + " of the link in time");
      }
    }
  }
  setup_.counters->messages_received += 1;
  setup_.counters->bytes_received += message->bytes.size();
  return std::move(*message);
}

LinkEnd SharedSession::end() const {
  const std::lock_guard lock(mutex_);
  return session_.end();
}

std::optional<Piece> SharedSession::next() {
  const std::lock_guard lock(mutex_);
  auto piece = session_.next(now());
  if (piece) changed();  // a queue may have a place
  return piece;
}

void SharedSession::written() {
  const std::lock_guard lock(mutex_);
  session_.written(now());
}

void SharedSession::received(const Frame& frame) {
  const std::lock_guard lock(mutex_);
  session_.received(frame, now());
  changed();
}

void SharedSession::peer_left(bool is_between_frames) {
  const std::lock_guard lock(mutex_);
  session_.peer_left(is_between_frames);
  changed();
}

void SharedSession::finish(LinkEnd reason) {
  const std::lock_guard lock(mutex_);
  session_.finish(reason);
  changed();
}

bool SharedSession::is_over(TimePoint now) {
  const std::lock_guard lock(mutex_);
  session_.tick(now);
  if (session_.end() == LinkEnd::none) return false;
  changed();
  return true;
}

bool SharedSession::wait(std::unique_lock<std::mutex>& lock, TimePoint deadline) {
  const TimePoint at = now();
  if (at >= deadline) return false;
  // The clock need not be the machine's: look at it again before long.
  condition_.wait_for(lock, std::min(k_tick, deadline - at));
  return true;
}

void SharedSession::changed() {
  if (session_.end() != LinkEnd::none && !std::exchange(is_counted_, true)) {
    setup_.counters->ended[static_cast<size_t>(session_.end())] += 1;
  }
  condition_.notify_all();
}

}  // namespace outrider::link
