#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace outrider::model::jinja {

/// Python's int(text, base): white space around, a sign, a prefix that fits the base, single
/// underscores. Nothing if it is no integer; fails if it is one beyond 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
/// Python's float(text).
std::optional<double> parse_float(std::string_view text);

}  // namespace outrider::model::jinja
