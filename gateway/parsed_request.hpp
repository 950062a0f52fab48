#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/request.hpp"
#include "gateway/json_body.hpp"

namespace outrider::gateway {

enum class RequestKind : uint8_t { chat, completion };

/// One prompt of a completions request: text, or token ids taken as they are.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

/// A validated body, before tokenization: every field in range, independent of the model. Made by
/// request_parser from HTTP and RPC alike, consumed by prompt.
struct ParsedRequest {
  RequestKind kind = RequestKind::completion;
  std::string model;  ///< Empty: the served one.

  std::vector<PromptInput> prompts;        ///< completion
  bool prompts_listed = false;             ///< They came as a list, maybe of one.
  Json messages = Json::array();           ///< chat: normalised, content is a string
  Json tools;                              ///< chat: null or an array
  Json template_variables;                 ///< chat: null or an object
  bool add_generation_prompt = true;       ///< chat
  std::optional<bool> add_special_tokens;  ///< Absent: completion yes, chat no.

  /// Sampling, stops, choices and logprobs, as the engine will see them; prompt and id are empty.
  GenerationRequest generation;
  std::optional<uint32_t> max_tokens;
  std::optional<uint64_t> seed;
  bool seed_is_negative = false;  ///< Returned as it was given.

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  bool echo = false;
  bool return_token_ids = false;

  JsonBudget json_budget;                   ///< Left for the readers of JSON in strings.
  std::vector<std::string> unknown_fields;  ///< Ignored; the caller logs each name once.
};

}  // namespace outrider::gateway
