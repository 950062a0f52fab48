#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace outrider::cluster {

/// Where a process of the cluster listens.
struct Endpoint {
  std::string host;  ///< name, IPv4 or IPv6 (without brackets); empty: all interfaces
  uint16_t port = 0;
};

/// "host:port", "[::1]:port" or ":port". The error names `field`.
Result<Endpoint> parse_endpoint(const std::string& text, const std::string& field);
std::string to_string(const Endpoint& endpoint);

/// Whether a published router takes a TCP connection there and greets within `timeout`, for each
/// address of the host: CAF would believe any other peer's first bytes, and wait for gigabytes.
/// Blocks as long; looking the name up may take longer.
Result<void> probe(const Endpoint& endpoint, Duration timeout);

}  // namespace outrider::cluster
