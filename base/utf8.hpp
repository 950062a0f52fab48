#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace outrider {

/// Length of the longest prefix of `text` that is valid UTF-8 (no surrogates, no overlong forms,
/// at most U+10FFFF).
size_t utf8_valid_prefix(std::string_view text);

inline bool utf8_valid(std::string_view text) {
  return utf8_valid_prefix(text) == text.size();
}

/// Bytes at the end of `text` that begin a character and could become valid with more bytes (0-3).
size_t utf8_incomplete_suffix(std::string_view text);

/// Replaces each maximal invalid part by U+FFFD, as Python's `errors="replace"` does.
std::string utf8_replace_invalid(std::string_view text);

}  // namespace outrider
