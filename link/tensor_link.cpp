#include "link/tensor_link.hpp"

#include <algorithm>
#include <string>

namespace outrider::link {
namespace {

Error out_of_range(const char* field, uint64_t value, uint64_t low, uint64_t high) {
  return fail(ErrorCode::invalid_argument,
              std::string("a link's ") + field + " is " + std::to_string(value) + ", not " +
                  std::to_string(low) + " to " + std::to_string(high),
              field);
}

}  // namespace

const char* to_string(LinkEnd end) {
  switch (end) {
    case LinkEnd::none:
      return "none";
    case LinkEnd::closed:
      return "closed";
    case LinkEnd::cut:
      return "cut";
    case LinkEnd::format:
      return "format";
    case LinkEnd::version:
      return "version";
    case LinkEnd::settings:
      return "settings";
    case LinkEnd::oversized:
      return "oversized";
    case LinkEnd::checksum:
      return "checksum";
    case LinkEnd::sequence:
      return "sequence";
    case LinkEnd::message:
      return "message";
    case LinkEnd::credit:
      return "credit";
    case LinkEnd::silent:
      return "silent";
    case LinkEnd::stalled:
      return "stalled";
    case LinkEnd::io:
      return "io";
    case LinkEnd::device:
      return "device";
  }
  return "unknown";
}

uint64_t LinkSettings::message_bytes_max() const {
  return std::min(window_bytes - limits::link_message_cost_bytes, limits::link_message_bytes_max);
}

Result<void> LinkSettings::check() const {
  if (streams < 1 || streams > limits::link_streams_max) {
    return out_of_range("streams", streams, 1, limits::link_streams_max);
  }
  const uint64_t window_min = limits::link_message_cost_bytes + 1;
  if (window_bytes < window_min || window_bytes > limits::link_window_bytes_max) {
    return out_of_range("window_bytes", window_bytes, window_min, limits::link_window_bytes_max);
  }
  if (frame_bytes < 1 || frame_bytes > limits::link_frame_bytes_max) {
    return out_of_range("frame_bytes", frame_bytes, 1, limits::link_frame_bytes_max);
  }
  return {};
}

}  // namespace outrider::link
