#include "cluster/endpoint.hpp"

#include <charconv>
#include <string_view>

namespace outrider::cluster {
Result<Endpoint> parse_endpoint(const std::string& text, const std::string& field) {
  const auto wrong = [&] {
    return fail(ErrorCode::invalid_argument, field + ": \"" + text + "\" is not HOST:PORT", field);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  Endpoint out;
  out.host = text.substr(0, colon);
  const bool bracketed = out.host.starts_with('[') && out.host.ends_with(']');
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (!bracketed && out.host.find(':') != std::string::npos) return wrong();
  if (out.host == "unix" || out.host == "unix-abstract") return wrong();  // KJ's other networks
  if (out.host == "*") out.host.clear();
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + colon + 1, end, out.port);
  if (error != std::errc() || at != end) return wrong();
  return out;
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

bool is_address(const std::string& host) {
  constexpr std::string_view k_digits = "0123456789.";
  return host.find(':') != host.npos || host.find_first_not_of(k_digits) == host.npos;
}

bool is_loopback(const std::string& host) {
  const bool is_v4 = is_address(host) && host.starts_with("127.");
  return host == "localhost" || host == "::1" || is_v4;
}

}  // namespace outrider::cluster
