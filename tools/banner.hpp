#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outrider::tools {

/// Where a server listens, as the settings say it and with the ports that it got.
struct Listening {
  std::string http;  ///< "127.0.0.1:8080", ":8080" for all interfaces
  std::string rpc;   ///< the same; empty: no port
  bool has_keys = false;
};

/// `address` with its port replaced.
std::string with_port(const std::string& address, uint16_t port);

/// What `serve` prints when it is ready: where it listens, and a command that shows an answer.
std::string banner(const std::string& model, const std::string& device, const Listening& listening);

/// One for each port that other machines reach without a key.
std::vector<std::string> exposure_warnings(const Listening& listening);

}  // namespace outrider::tools
