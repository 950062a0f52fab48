#include "gateway/json_body.hpp"

#include <vector>

#include "base/utf8.hpp"

namespace outrider::gateway {
namespace {

struct Shape {
  uint32_t depth = 0;     ///< Deepest nesting of brackets.
  uint64_t key_work = 0;  ///< What the parser will spend on finding keys.
};

/// An ordered object compares each new key with all before it, equally long ones byte by byte. Two
/// units are a comparison of short keys, some nanoseconds.
uint64_t search_work(uint64_t keys_before, size_t key_bytes) {
  return keys_before * (2 + key_bytes / 32);
}

/// Wrong JSON may give any numbers; the parser decides about it. Stops counting at a limit.
Shape shape_of(std::string_view body, uint64_t key_work_max) {
  Shape shape;
  std::vector<uint64_t> commas;  // of the open brackets; k_array for arrays
  constexpr uint64_t k_array = UINT64_MAX;
  bool in_string = false;
  bool in_key = false;
  size_t string_start = 0;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c != '"') continue;
      in_string = false;
      if (in_key) shape.key_work += search_work(commas.back(), i - string_start);
      if (shape.key_work > key_work_max) return shape;
      in_key = false;
    } else if (c == '"') {
      in_string = true;
      string_start = i;
    } else if (c == '[' || c == '{') {
      commas.push_back(c == '[' ? k_array : 0);
      in_key = c == '{';
      shape.depth = std::max(shape.depth, static_cast<uint32_t>(commas.size()));
      if (shape.depth > limits::json_depth_max) return shape;
    } else if (c == ',' && !commas.empty() && commas.back() != k_array) {
      ++commas.back();
      in_key = true;
    } else if ((c == ']' || c == '}') && !commas.empty()) {
      in_key = false;
      commas.pop_back();
    }
  }
  return shape;
}

}  // namespace

Result<Json> parse_json_body(std::string_view body, JsonBudget& budget, const std::string& what) {
  if (body.size() > limits::http_body_bytes_max) {
    return fail(ErrorCode::too_large, what + " has " + std::to_string(body.size()) +
                                          " bytes, the limit is " +
                                          std::to_string(limits::http_body_bytes_max));
  }
  const size_t valid = utf8_valid_prefix(body);
  if (valid != body.size()) {
    return fail(ErrorCode::invalid_argument,
                what + " is not valid UTF-8: byte " + std::to_string(valid) + " is wrong");
  }
  // The parser takes it for the end, whatever follows.
  if (const size_t nul = body.find('\0'); nul != body.npos) {
    return fail(ErrorCode::invalid_argument,
                what + " is not valid JSON: syntax error at byte " + std::to_string(nul + 1));
  }
  const Shape shape = shape_of(body, budget.key_work);
  if (shape.key_work > budget.key_work) {
    return fail(ErrorCode::invalid_argument, what + " has objects with too many keys");
  }
  budget.key_work -= shape.key_work;
  if (shape.depth > limits::json_depth_max) {
    return fail(ErrorCode::invalid_argument,
                what + " nests deeper than " + std::to_string(limits::json_depth_max) + " levels");
  }
  try {
    return Json::parse(body);
  } catch (const Json::parse_error& e) {
    return fail(ErrorCode::invalid_argument,
                what + " is not valid JSON: syntax error at byte " + std::to_string(e.byte));
  } catch (const Json::exception&) {
    return fail(ErrorCode::invalid_argument, what + " is not valid JSON: a number is out of range");
  }
}

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace outrider::gateway
