#include "gateway/json_body.hpp"

#include <vector>

#include "base/limits.hpp"
#include "base/utf8.hpp"

namespace outrider::gateway {
namespace {

struct Shape {
  uint32_t depth = 0;     ///< Deepest nesting of brackets.
  uint64_t key_work = 0;  ///< Sum over objects of keys squared: an ordered object is searched.
};

/// Wrong JSON may give any numbers; the parser decides about it. Stops counting at a limit.
Shape shape_of(std::string_view body) {
  Shape shape;
  std::vector<uint64_t> commas;  // of the open brackets; k_array for arrays
  constexpr uint64_t k_array = UINT64_MAX;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      commas.push_back(c == '[' ? k_array : 0);
      shape.depth = std::max(shape.depth, static_cast<uint32_t>(commas.size()));
      if (shape.depth > limits::json_depth_max) return shape;
    } else if (c == ',' && !commas.empty() && commas.back() != k_array) {
      shape.key_work += 2 * ++commas.back();
      if (shape.key_work > limits::json_key_work_max) return shape;
    } else if ((c == ']' || c == '}') && !commas.empty()) {
      commas.pop_back();
    }
  }
  return shape;
}

}  // namespace

Result<Json> parse_json_body(std::string_view body) {
  if (body.size() > limits::http_body_bytes_max) {
    return fail(ErrorCode::too_large, "the body has " + std::to_string(body.size()) +
                                          " bytes, the limit is " +
                                          std::to_string(limits::http_body_bytes_max));
  }
  const size_t valid = utf8_valid_prefix(body);
  if (valid != body.size()) {
    return fail(ErrorCode::invalid_argument,
                "the body is not valid UTF-8: byte " + std::to_string(valid) + " is wrong");
  }
  const Shape shape = shape_of(body);
  if (shape.key_work > limits::json_key_work_max) {
    return fail(ErrorCode::invalid_argument, "the body has objects with too many keys");
  }
  if (shape.depth > limits::json_depth_max) {
    return fail(ErrorCode::invalid_argument,
                "the body nests deeper than " + std::to_string(limits::json_depth_max) + " levels");
  }
  try {
    return Json::parse(body);
  } catch (const Json::parse_error& e) {
    return fail(ErrorCode::invalid_argument,
                "the body is not valid JSON: syntax error at byte " + std::to_string(e.byte));
  } catch (const Json::exception&) {
    return fail(ErrorCode::invalid_argument,
                "the body is not valid JSON: a number is out of range");
  }
}

}  // namespace outrider::gateway
