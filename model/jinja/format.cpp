#include <array>
#include <cmath>
#include <cstdio>

#include "model/jinja/interpreter.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

struct Spec {
  bool left = false, zero = false, plus = false, space = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

/// Python's `format % args` for the conversions that make sense in text: s r a? d i u f e g x o c
/// %.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, const std::string& format, const Value& args)
      : in_(in), format_(format), args_(args) {}

  std::string run() {
    for (at_ = 0; at_ < format_.size();) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      put(std::string_view(format_).substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) conversion();
    }
    // Python takes whatever has items, text and tuples aside, as a mapping that may hold more.
    const bool mapping = args_.is(Kind::dict) || args_.is_undefined() ||
                         (args_.is(Kind::list) && (args_.list().kind == ListKind::list ||
                                                   args_.list().kind == ListKind::range));
    const bool tuple = args_.is(Kind::list) && args_.list().kind == ListKind::tuple;
    if (!mapping && next_ < (tuple ? args_.list().items.size() : 1)) {
      fail_value("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    in_.budget().charge(text.size());
    out_ += text;
  }

  char peek() const {
    if (at_ >= format_.size()) fail_value("incomplete format");
    return format_[at_];
  }

  const Value& next_argument() {
    if (args_.is(Kind::list) && args_.list().kind == ListKind::tuple) {
      if (next_ < args_.list().items.size()) return args_.list().items[next_++];
    } else if (next_ == 0) {
      ++next_;
      return args_;
    }
    fail_value("not enough arguments for format string");
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value& value = next_argument();
      if (!value.is_integral()) fail_value("* wants int");
      return value.integral();
    }
    int64_t out = 0;
    while (peek() >= '0' && peek() <= '9') {
      out = out * 10 + (peek() - '0');
      if (out > INT32_MAX) fail_value("width too big");
      ++at_;
    }
    return out;
  }

  void conversion() {
    ++at_;
    const Value* named = nullptr;
    if (peek() == '(') {
      const size_t close = format_.find(')', at_);
      if (close == std::string::npos) fail_value("incomplete format key");
      if (!args_.is(Kind::dict)) fail_value("format requires a mapping");
      named = args_.dict().find(std::string_view(format_).substr(at_ + 1, close - at_ - 1));
      if (named == nullptr) fail_value("the format's key is not in the mapping");
      at_ = close + 1;
    }
    Spec spec;
    for (bool flag = true; flag;) {
      switch (peek()) {
        case '-':
          spec.left = true;
          break;
        case '0':
          spec.zero = true;
          break;
        case '+':
          spec.plus = true;
          break;
        case ' ':
          spec.space = true;
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          flag = false;
      }
      if (flag) ++at_;
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.left = true;
      spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    spec.type = peek();
    ++at_;
    if (spec.type == '%') {
      put("%");
      return;
    }
    convert(spec, named != nullptr ? *named : next_argument());
  }

  void convert(const Spec& spec, const Value& value) {
    switch (spec.type) {
      case 's':
        return text(spec, to_text(in_.budget(), value));
      case 'r':
        return text(spec, to_repr(in_.budget(), value));
      case 'c':
        if (!value.is_string() || count_code_points(value.text()) != 1) {
          fail_value("%c requires int or char");
        }
        return text(spec, value.text());
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer(spec, value);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        return real(spec, value);
      default:
        fail_value(std::string("unsupported format character '") + spec.type + "'");
    }
  }

  void text(const Spec& spec, std::string value) {
    if (spec.precision >= 0) {
      value.resize(byte_offset(value, static_cast<size_t>(spec.precision)));
    }
    pad(spec, {}, value, false);
  }

  void integer(const Spec& spec, const Value& value) {
    if (value.is_undefined()) fail_undefined(value);
    const bool truncates = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_integral() && !(truncates && value.is(Kind::number))) {
      fail_value(std::string("%") + spec.type + " format: an integer is required");
    }
    if (!value.is_integral() && !(std::fabs(value.number()) < 9223372036854775808.0)) {
      fail_value("the number does not fit 64 bits");
    }
    const int64_t number =
        value.is_integral() ? value.integral() : static_cast<int64_t>(value.number());
    const uint64_t magnitude =
        number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    std::array<char, 32> digits;
    const char* pattern = truncates          ? "%llu"
                          : spec.type == 'x' ? "%llx"
                          : spec.type == 'X' ? "%llX"
                                             : "%llo";
    std::snprintf(digits.data(), digits.size(), pattern,
                  static_cast<unsigned long long>(magnitude));
    std::string body = digits.data();
    if (spec.precision > static_cast<int64_t>(body.size())) {
      in_.budget().charge(static_cast<uint64_t>(spec.precision));
      body.insert(0, static_cast<size_t>(spec.precision) - body.size(), '0');
    }
    std::string prefix = sign(spec, number < 0);
    if (spec.alternate && !truncates) prefix += std::string("0") + spec.type;
    pad(spec, prefix, body, spec.zero);
  }

  void real(const Spec& spec, const Value& value) {
    if (value.is_undefined()) fail_undefined(value);
    if (!value.is_numeric())
      fail_value("must be real number, not " + std::string(type_name(value)));
    const double number = value.number();
    const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
    if (precision > 400) fail_value("precision too big");
    std::array<char, 800> digits;
    const std::string pattern = std::string(spec.alternate ? "%#.*" : "%.*") + spec.type;
    std::snprintf(digits.data(), digits.size(), pattern.c_str(), static_cast<int>(precision),
                  std::fabs(number));
    pad(spec, sign(spec, std::signbit(number) && !std::isnan(number)), digits.data(), spec.zero);
  }

  static std::string sign(const Spec& spec, bool negative) {
    return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  }

  void pad(const Spec& spec, const std::string& prefix, std::string_view body, bool zeros) {
    const auto size = static_cast<int64_t>(prefix.size() + count_code_points(body));
    const int64_t missing = std::max<int64_t>(spec.width - size, 0);
    in_.budget().charge(static_cast<uint64_t>(missing));
    const std::string fill(static_cast<size_t>(missing), zeros && !spec.left ? '0' : ' ');
    if (spec.left) {
      put(prefix);
      put(body);
      put(fill);
    } else {
      put(zeros ? prefix : fill);
      put(zeros ? fill : prefix);
      put(body);
    }
  }

  Interpreter& in_;
  const std::string& format_;
  const Value& args_;
  size_t at_ = 0;
  size_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string percent_format(Interpreter& in, const std::string& format, const Value& args) {
  return PercentFormatter(in, format, args).run();
}

}  // namespace outrider::model::jinja
