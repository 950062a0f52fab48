#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "gateway/json_body.hpp"
#include "gateway/parsed_request.hpp"

namespace outrider::gateway {

/// Body of a generation request to a validated ParsedRequest. Errors name the field. Unknown
/// fields are listed in the result and otherwise ignored. Pure; any thread.
Result<ParsedRequest> parse_request_body(RequestKind kind, std::string_view body);

/// The same for JSON that is already parsed: the RPC side comes in here, with
/// what parsing it left of the budget.
Result<ParsedRequest> parse_request(RequestKind kind, const Json& body, JsonBudget budget);

/// All field names that parse_request knows, for both kinds.
std::vector<std::string> known_request_fields();

}  // namespace outrider::gateway
