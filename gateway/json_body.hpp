#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "base/result.hpp"

namespace outrider::gateway {

/// Ordered: templates print tools in the order in which the client wrote them.
using Json = nlohmann::ordered_json;

/// What one request may still spend on searching objects for their keys: its body and all the JSON
/// that it carries in strings draw on the same one.
struct JsonBudget {
  uint64_t key_work = limits::json_key_work_max;
};

/// Parses a hostile JSON body, or another text that errors call `what`: at most
/// limits::http_body_bytes_max bytes, valid UTF-8, nesting up to limits::json_depth_max, keys
/// bounded by the budget (both checked before a parser sees it, so that depth costs no stack and
/// wide objects no time).
Result<Json> parse_json_body(std::string_view body, JsonBudget& budget,
                             const std::string& what = "the body");

/// On one line; what is no UTF-8 is replaced.
std::string to_text(const Json& value);

}  // namespace outrider::gateway
