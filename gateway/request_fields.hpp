#pragma once

#include <span>
#include <string_view>

#include "base/result.hpp"
#include "gateway/json_body.hpp"
#include "gateway/parsed_request.hpp"

namespace outrider::gateway {

enum class FieldScope : uint8_t { chat = 1, completion = 2, both = 3 };

/// One request field that we know: its JSON name, where it may stand, and its reader, which checks
/// type and range. A null value counts as absent.
struct RequestField {
  const char* name;
  FieldScope scope;
  Result<void> (*read)(const Json& value, ParsedRequest& out);
};

/// Sampling, lengths, stops, logprobs: sampling_fields.cpp.
std::span<const RequestField> sampling_fields();
/// Prompt, messages, tools, streaming and what is ours: input_fields.cpp.
std::span<const RequestField> input_fields();
/// Messages in OpenAI's shapes to plain {role, content, …} for a chat template.
/// Tool calls' arguments are JSON in a string: it is parsed out of `budget`.
Result<Json> normalise_messages(const Json& value, JsonBudget& budget);
/// Function definitions, checked for shape only.
Result<void> check_tools(const Json& value);

}  // namespace outrider::gateway
