#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace outrider {

/// Without the blanks and tabs around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

/// What stands between commas, trimmed: of "a, b" it is "a" and "b", of nothing one empty entry.
inline std::vector<std::string_view> comma_list(std::string_view text) {
  std::vector<std::string_view> entries;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    entries.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return entries;
}

}  // namespace outrider
