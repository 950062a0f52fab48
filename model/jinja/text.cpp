#include "model/jinja/text.hpp"

#include <string.h>

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.hpp"

namespace outrider::model::jinja {
namespace {

std::string hex_escape(char letter, char32_t code, int digits) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = {'\\', letter};
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += hex[(code >> shift) & 0xF];
  }
  return out;
}

void append_quoted(std::string& out, char32_t code, char quote) {
  if (code == static_cast<char32_t>(quote) || code == '\\') {
    out += '\\';
    out += static_cast<char>(code);
  } else if (code == '\n') {
    out += "\\n";
  } else if (code == '\r') {
    out += "\\r";
  } else if (code == '\t') {
    out += "\\t";
  } else if (is_printable(code)) {
    append_utf8(out, code);
  } else if (code < 0x100) {
    out += hex_escape('x', code, 2);
  } else if (code < 0x10000) {
    out += hex_escape('u', code, 4);
  } else {
    out += hex_escape('U', code, 8);
  }
}

size_t previous_start(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

template <class Drop>
std::string_view strip_if(std::string_view text, StripSides sides, Drop drop) {
  size_t begin = 0;
  size_t end = text.size();
  while (sides.left && begin < end) {
    size_t next = begin;
    if (!drop(decode_at(text, next))) break;
    begin = next;
  }
  while (sides.right && begin < end) {
    const size_t last = previous_start(text, end);
    size_t at = last;
    if (!drop(decode_at(text, at))) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

char32_t decode_at(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  OUTRIDER_CHECK(at + length <= text.size(), at, text.size());
  constexpr std::array<uint8_t, 5> masks = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code = lead & masks[length];
  for (size_t i = 1; i < length; ++i) code = (code << 6) | (byte(at + i) & 0x3Fu);
  at += length;
  return code;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<uint8_t>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out += decode_at(text, at);
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t code : text) append_utf8(out, code);
  return out;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;
    if (index-- == 0) return at;
  }
  return at;
}

bool is_space(char32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view strip_space(std::string_view text, StripSides sides) {
  return strip_if(text, sides, is_space);
}

std::string_view strip_set(std::string_view text, std::string_view set, StripSides sides) {
  const std::u32string codes = to_code_points(set);
  return strip_if(text, sides,
                  [&](char32_t code) { return codes.find(code) != std::u32string::npos; });
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem is linear whatever both hold; string_view::find is quadratic at worst.
  const void* found =
      ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view needle) {
  const std::string mirrored(text.rbegin(), text.rend());
  const std::string mirrored_needle(needle.rbegin(), needle.rend());
  const size_t at = find_text(mirrored, mirrored_needle);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t code = decode_at(text, at);
    const bool breaks = (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) ||
                        code == 0x85 || code == 0x2028 || code == 0x2029;
    if (!breaks) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view shortest(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const char* digits_begin = shortest.data() + e + 1 + (shortest[e + 1] == '+' ? 1 : 0);
  std::from_chars(digits_begin, end.ptr, exponent);
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::fixed);
    std::string out(buffer.data(), fixed.ptr);
    if (out.find('.') == std::string::npos) out += ".0";
    return out;
  }
  return std::string(shortest);  // "1e+16", "1.5e-05": the same form as Python's
}

std::string quoted_text(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool both = single && text.find('"') != std::string_view::npos;
  const char quote = single && !both ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) append_quoted(out, decode_at(text, at), quote);
  out += quote;
  return out;
}

}  // namespace outrider::model::jinja
