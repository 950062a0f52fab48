#include "link/session.hpp"

#include <chrono>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::link {
namespace {

constexpr Duration k_ping = std::chrono::milliseconds(limits::link_ping_ms);
constexpr Duration k_silence = std::chrono::milliseconds(limits::link_silence_ms);
constexpr Duration k_pause = std::chrono::milliseconds(limits::link_pause_ms);

}  // namespace

Session::Session(const LinkSettings& settings, TimePoint now)
    : settings_(settings), outgoing_(settings), incoming_(settings), heard_(now), spoke_(now) {}

std::optional<Piece> Session::next(TimePoint now) {
  OUTRIDER_CHECK(!is_writing_);
  if (end_ != LinkEnd::none) return std::nullopt;
  auto piece = choose(now);
  if (!piece) return std::nullopt;
  piece->frame.sequence = sequence_++;
  is_writing_ = true;
  spoke_ = now;
  return piece;
}

std::optional<Piece> Session::choose(TimePoint now) {
  Piece piece;
  if (!std::exchange(has_greeted_, true)) {
    piece.frame.kind = FrameKind::hello;
    piece.frame.stream = static_cast<uint8_t>(settings_.streams);
    piece.frame.value = settings_.window_bytes;
    return piece;
  }
  if (const auto credit = incoming_.next_credit()) {
    piece.frame.kind = FrameKind::credit;
    piece.frame.stream = credit->stream;
    piece.frame.value = credit->bytes;
    return piece;
  }
  if (auto data = outgoing_.next()) return data;
  if (now - spoke_ < k_ping) return std::nullopt;
  piece.frame.kind = FrameKind::ping;
  return piece;
}

void Session::written(TimePoint now) {
  OUTRIDER_CHECK(is_writing_);
  is_writing_ = false;
  spoke_ = now;
}

void Session::received(const Frame& frame, TimePoint now) {
  if (end_ != LinkEnd::none) return;
  heard_ = now;
  finish(meaning_of(frame, now));
}

LinkEnd Session::meaning_of(const Frame& frame, TimePoint now) {
  if ((frame.kind == FrameKind::hello) == was_greeted_) return LinkEnd::format;
  switch (frame.kind) {
    case FrameKind::hello:
      was_greeted_ = true;
      return frame.stream == settings_.streams && frame.value == settings_.window_bytes
                 ? LinkEnd::none
                 : LinkEnd::settings;
    case FrameKind::data:
      return incoming_.take(frame, now);
    case FrameKind::credit:
      return outgoing_.granted(frame.stream, frame.value);
    case FrameKind::ping:
      return LinkEnd::none;
  }
  return LinkEnd::format;
}

void Session::peer_left(bool is_between_frames) {
  const bool is_idle = is_between_frames && !incoming_.oldest_pause();
  finish(is_idle ? LinkEnd::closed : LinkEnd::cut);
}

void Session::tick(TimePoint now) {
  if (now - heard_ >= k_silence) finish(LinkEnd::silent);
  if (is_writing_ && now - spoke_ >= k_silence) finish(LinkEnd::stalled);
  const auto pause = incoming_.oldest_pause();
  if (pause && now - *pause >= k_pause) finish(LinkEnd::stalled);
}

void Session::finish(LinkEnd reason) {
  if (end_ == LinkEnd::none) end_ = reason;
}

}  // namespace outrider::link
