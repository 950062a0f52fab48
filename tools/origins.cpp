#include "tools/origins.hpp"

#include <algorithm>
#include <cstdint>

#include "base/comma_list.hpp"
#include "base/sampling_ranges.hpp"
#include "tools/parse_number.hpp"

namespace outrider::tools {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_scheme(std::string_view text) {
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
         });
}

/// A name, an IPv4 address or an IPv6 address in brackets.
bool is_host(std::string_view text) {
  const bool bracketed = text.starts_with('[') && text.ends_with(']') && text.size() > 2;
  if (bracketed) text = text.substr(1, text.size() - 2);
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || is_digit(c) || c == '.' || (bracketed ? c == ':' : c == '-' || c == '_');
  });
}

/// Nothing behind the host and port, not even a slash: browsers send none.
bool is_origin(std::string_view text) {
  const size_t slashes = text.find("://");
  if (slashes == std::string_view::npos || !is_scheme(text.substr(0, slashes))) return false;
  std::string_view host = text.substr(slashes + 3);
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && !host.ends_with(']')) {
    uint16_t port = 0;
    if (!parse_number(host.substr(colon + 1), IntegerRange{1, UINT16_MAX}, port)) return false;
    host = host.substr(0, colon);
  }
  return is_host(host);
}

}  // namespace

bool is_origins(std::string_view text) {
  if (text == "*" || text == "off") return true;
  return std::ranges::all_of(comma_list(text), is_origin);
}

}  // namespace outrider::tools
