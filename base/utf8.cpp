#include "base/utf8.hpp"

#include <cstdint>

namespace outrider {
namespace {

struct Step {
  size_t length = 0;    // bytes examined
  bool valid = false;   // they form one character
  bool at_end = false;  // not valid only because the text ended
};

uint8_t byte_at(std::string_view text, size_t index) {
  return static_cast<uint8_t>(text[index]);
}

/// Examines one character at `at`. The ranges are table 3-7 of the Unicode standard.
Step step_at(std::string_view text, size_t at) {
  const uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < need; ++i) {
    if (at + i >= text.size()) return {i, false, true};
    const uint8_t next = byte_at(text, at + i);
    if (next < low || next > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {need, true, false};
}

}  // namespace

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Step step = step_at(text, at);
    if (!step.valid) break;
    at += step.length;
  }
  return at;
}

size_t utf8_incomplete_suffix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if ((byte_at(text, at) & 0xC0) == 0x80) continue;
    const Step step = step_at(text, at);
    return !step.valid && step.at_end && step.length == back ? back : 0;
  }
  return 0;
}

std::string utf8_replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Step step = step_at(text, at);
    if (step.valid) {
      out.append(text.substr(at, step.length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += step.length;
  }
  return out;
}

}  // namespace outrider
