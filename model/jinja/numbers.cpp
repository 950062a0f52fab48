#include "model/jinja/numbers.hpp"

#include <charconv>
#include <limits>
#include <string>

#include "model/jinja/error.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Without underscores, each of which has to stand between two digits or letters.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_alphanumeric(text[i - 1]) ||
               !is_alphanumeric(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

/// The base that a prefix such as 0x names; 0 without one.
int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  const char letter = static_cast<char>(text[1] | 0x20);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = strip_space(text, {});
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const int prefix = prefix_base(text);
  int digits_base = base == 0 ? 10 : static_cast<int>(base);
  if (prefix != 0 && (base == 0 || base == prefix)) {
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    digits_base = prefix;
  } else if (base == 0 && text.size() > 1 && text[0] == '0' &&
             text.find_first_not_of("0_") != std::string_view::npos) {
    return std::nullopt;
  }
  auto digits = without_underscores(text);
  if (!digits || digits->empty() || !is_alphanumeric(digits->front())) return std::nullopt;
  if (negative) digits->insert(digits->begin(), '-');
  int64_t out = 0;
  const auto parsed =
      std::from_chars(digits->data(), digits->data() + digits->size(), out, digits_base);
  if (parsed.ptr != digits->data() + digits->size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) fail_value("integer does not fit 64 bits");
  if (parsed.ec != std::errc()) return std::nullopt;
  return out;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_space(text, {});
  auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  if (digits->front() == '+') {
    digits->erase(0, 1);
    if (digits->empty() || digits->front() == '-') return std::nullopt;
  }
  double out = 0;
  const auto parsed = std::from_chars(digits->data(), digits->data() + digits->size(), out);
  if (parsed.ptr != digits->data() + digits->size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    const bool tiny = digits->find("e-") != std::string::npos ||
                      digits->find("E-") != std::string::npos || digits->find("0.") == 0;
    const double magnitude = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    return digits->front() == '-' ? -magnitude : magnitude;
  }
  if (parsed.ec != std::errc()) return std::nullopt;
  return out;
}

}  // namespace outrider::model::jinja
