#pragma once

#include <cstdint>
#include <string>

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

/// Whether it is an IPv4 or IPv6 address, and no name.
bool is_address(const std::string& host);
/// Whether only this machine reaches a host of that name.
bool is_loopback(const std::string& host);

}  // namespace outrider::cluster
