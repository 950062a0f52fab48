#include "gateway/trace_context.hpp"

#include <algorithm>

#include "base/limits.hpp"

namespace outrider::gateway {
namespace {

/// Lower-case hexadecimal.
bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == text.npos;
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

}  // namespace

std::string_view trace_id(std::string_view traceparent) {
  // version "-" trace-id "-" parent-id "-" flags; later versions may go on after another "-".
  constexpr size_t k_bytes = 55;
  if (traceparent.size() < k_bytes || traceparent.size() > limits::request_id_bytes_max) return {};
  const std::string_view version = traceparent.substr(0, 2);
  const std::string_view trace = traceparent.substr(3, 32);
  const std::string_view parent = traceparent.substr(36, 16);
  const std::string_view flags = traceparent.substr(53, 2);
  const bool dashes = traceparent[2] == '-' && traceparent[35] == '-' && traceparent[52] == '-';
  const bool hex = is_hex(version) && is_hex(trace) && is_hex(parent) && is_hex(flags);
  if (!dashes || !hex || version == "ff" || is_zero(trace) || is_zero(parent)) return {};
  const std::string_view more = traceparent.substr(k_bytes);
  if (!more.empty() && (version == "00" || more[0] != '-' || !is_printable(more))) return {};
  return trace;
}

}  // namespace outrider::gateway
