#include <algorithm>

#include "model/jinja/text.hpp"
#include "model/jinja/unicode.hpp"

namespace outrider::model::jinja {
namespace {

bool in_ranges(std::span<const CodeRange> ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t c, const CodeRange& r) { return c < r.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

struct CaseTable {
  std::span<const CaseShift> shifts;
  std::span<const CaseExpansion> expansions;
};

CaseTable lower_table() {
  return {k_lower_shift, k_lower_expansion};
}
CaseTable upper_table() {
  return {k_upper_shift, k_upper_expansion};
}
CaseTable title_table() {
  return {k_title_shift, k_title_expansion};
}

void append_mapped(std::string& out, const CaseTable& table, char32_t code) {
  const auto one = std::lower_bound(table.expansions.begin(), table.expansions.end(), code,
                                    [](const CaseExpansion& e, char32_t c) { return e.code < c; });
  if (one != table.expansions.end() && one->code == code) {
    for (const uint32_t to : one->to) {
      if (to != 0) append_utf8(out, to);
    }
    return;
  }
  auto run = std::upper_bound(table.shifts.begin(), table.shifts.end(), code,
                              [](char32_t c, const CaseShift& s) { return c < s.first; });
  // Runs of stride 2 may interleave with the one before.
  for (int back = 0; back < 2 && run != table.shifts.begin(); ++back) {
    --run;
    if (code <= run->last && (code - run->first) % run->stride == 0) {
      append_utf8(out, static_cast<char32_t>(static_cast<int32_t>(code) + run->shift));
      return;
    }
  }
  append_utf8(out, code);
}

/// Greek capital sigma is written ς at the end of a word.
bool is_final_sigma(const std::u32string& text, size_t at) {
  const auto skipped = [](char32_t c) {
    return c == '\'' || c == '.' || c == ':' || c == 0xAD || c == 0xB7 || c == 0x2019 ||
           (c >= 0x300 && c <= 0x36F);
  };
  size_t before = at;
  while (before > 0 && skipped(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && skipped(text[after])) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::string& out, const std::u32string& codes, size_t at) {
  if (codes[at] == 0x3A3) {
    append_utf8(out, is_final_sigma(codes, at) ? 0x3C2 : 0x3C3);
  } else {
    append_mapped(out, lower_table(), codes[at]);
  }
}

}  // namespace

bool is_printable(char32_t code) {
  return in_ranges(k_printable, code);
}
bool is_cased(char32_t code) {
  return in_ranges(k_cased, code);
}
bool is_alpha(char32_t code) {
  return in_ranges(k_alpha, code);
}
bool is_digit(char32_t code) {
  return in_ranges(k_digit, code);
}

std::string to_lower(std::string_view text) {
  const std::u32string codes = to_code_points(text);
  std::string out;
  for (size_t i = 0; i < codes.size(); ++i) append_lower(out, codes, i);
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_mapped(out, upper_table(), decode_at(text, at));
  return out;
}

std::string to_title(std::string_view text) {
  const std::u32string codes = to_code_points(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (in_word) {
      append_lower(out, codes, i);
    } else {
      append_mapped(out, title_table(), codes[i]);
    }
    in_word = is_cased(codes[i]);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  const std::u32string codes = to_code_points(text);
  std::string out;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i == 0) {
      append_mapped(out, title_table(), codes[i]);
    } else {
      append_lower(out, codes, i);
    }
  }
  return out;
}

}  // namespace outrider::model::jinja
