#pragma once

#include <cstdint>
#include <string>

#include "base/limits.hpp"

namespace outrider::gateway {

/// Times and bounds of the HTTP edge; tests shorten them.
struct HttpSettings {
  uint32_t header_timeout_ms = limits::http_header_timeout_ms;
  uint32_t body_timeout_ms = limits::http_body_timeout_ms;
  uint32_t body_total_timeout_ms = limits::http_body_total_timeout_ms;
  uint32_t write_timeout_ms = limits::client_write_timeout_ms;
  uint32_t ping_interval_ms = limits::sse_ping_interval_ms;
  uint32_t watch_interval_ms = limits::client_watch_interval_ms;
  uint32_t connections_max = limits::connections_max;
  size_t bodies_bytes_max = limits::http_bodies_bytes_max;
  /// Whose web pages may ask: "*", or origins separated by commas; "off": none.
  std::string cors_origins = "*";
};

}  // namespace outrider::gateway
