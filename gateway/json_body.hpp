#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.hpp"

namespace outrider::gateway {

/// Ordered: templates print tools in the order in which the client wrote them.
using Json = nlohmann::ordered_json;

/// Parses a hostile JSON body: at most limits::http_body_bytes_max bytes, valid UTF-8, nesting up
/// to limits::json_depth_max, keys per object bounded by limits::json_key_work_max (both checked
/// before a parser sees it, so that depth costs no stack and wide objects no time).
Result<Json> parse_json_body(std::string_view body);

}  // namespace outrider::gateway
