#pragma once

#include <charconv>
#include <string_view>

namespace outrider::tools {

/// Takes the whole of `text` as a number inside the range; false leaves `out` alone. Not strtod,
/// which takes hexadecimal and the person's locale.
template <class Range, class T>
bool parse_number(std::string_view text, Range range, T& out) {
  typename Range::Value value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !range.holds(value)) return false;
  out = static_cast<T>(value);
  return true;
}

}  // namespace outrider::tools
