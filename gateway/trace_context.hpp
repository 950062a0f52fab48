#pragma once

#include <string_view>

namespace outrider::gateway {

/// The trace id in a `traceparent` header (W3C Trace Context); empty when the header is malformed.
std::string_view trace_id(std::string_view traceparent);

}  // namespace outrider::gateway
