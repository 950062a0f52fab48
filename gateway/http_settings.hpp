#pragma once

#include <cstdint>

#include "base/limits.hpp"

namespace outrider::gateway {

/// Times and bounds of the HTTP edge; tests shorten them.
struct HttpSettings {
  uint32_t header_timeout_ms = limits::http_header_timeout_ms;
  uint32_t body_timeout_ms = limits::http_body_timeout_ms;
  uint32_t body_total_timeout_ms = limits::http_body_total_timeout_ms;
  uint32_t write_timeout_ms = limits::client_write_timeout_ms;
  uint32_t ping_interval_ms = limits::sse_ping_interval_ms;
  uint32_t connections_max = limits::connections_max;
};

}  // namespace outrider::gateway
