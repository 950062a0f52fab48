#include "gateway/request_parser.hpp"

#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "gateway/json_values.hpp"
#include "gateway/request_fields.hpp"

namespace outrider::gateway {
namespace {

bool in_scope(const RequestField& field, RequestKind kind) {
  const auto bit = kind == RequestKind::chat ? FieldScope::chat : FieldScope::completion;
  return (static_cast<uint8_t>(field.scope) & static_cast<uint8_t>(bit)) != 0;
}

Result<void> read_fields(std::span<const RequestField> fields, const Json& body,
                         ParsedRequest& out) {
  for (const auto& field : fields) {
    const auto it = body.find(field.name);
    if (it == body.end() || it->is_null() || !in_scope(field, out.kind)) continue;
    OUTRIDER_TRY(field.read(*it, out));
  }
  return {};
}

/// A field that other servers know and that would change the answer: to ignore it would be to lie.
struct UnsupportedField {
  const char* name;
  double neutral = 0;  ///< A number that asks for nothing, as null, false, "" and [] do.
};

constexpr UnsupportedField k_unsupported[] = {
    // what the answer may be
    {"structured_outputs"},
    {"structural_tag"},
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"grammar"},
    {"json_schema"},
    {"regex"},
    {"ebnf"},
    {"bad_words"},
    {"allowed_token_ids"},
    {"logits_processors"},
    {"functions"},
    // what the model is asked, or which model
    {"chat_template"},
    {"documents"},
    {"prompt_embeds"},
    {"truncate_prompt_tokens"},
    {"continue_final_message"},
    {"reasoning_effort"},
    {"web_search_options"},
    {"audio"},
    {"lora"},
    // how tokens are chosen; what only tunes one of these has no effect without it
    {"use_beam_search"},
    {"length_penalty", 1},
    {"repeat_penalty", 1},
    {"typical_p", 1},
    {"tfs_z", 1},
    {"mirostat"},
    {"dry_multiplier"},
    {"xtc_probability"},
    {"dynatemp_range"},
    {"top_n_sigma", -1},
    {"samplers"},
    {"penalty_last_n", -1},
    {"min_keep"},
    // how long the answer is, and what is told of it
    {"n_predict", -1},
    {"t_max_predict_ms"},
    {"n_probs"},
};

Result<void> refuse_unsupported(const Json& body) {
  for (const auto& [name, neutral] : k_unsupported) {
    const auto it = body.find(name);
    if (it == body.end() || it->is_null() || *it == false || *it == "") continue;
    if (it->is_array() && it->empty()) continue;
    if (it->is_number() && it->get<double>() == neutral) continue;
    return fail(ErrorCode::unsupported, std::string(name) + " is not supported", name);
  }
  const Json modalities = body.value("modalities", Json());
  if (!modalities.empty() && modalities != Json{"text"}) {
    return fail(ErrorCode::unsupported, "modalities can only be [\"text\"] here", "modalities");
  }
  return {};
}

/// OpenAI's fields that say nothing about the answer: taken as they are.
constexpr std::array k_without_effect = {
    "store",        "metadata",          "parallel_tool_calls",
    "service_tier", "safety_identifier", "prompt_cache_key",
};

/// One that is not supported, and asks for nothing, is known.
void list_unknown_fields(const Json& body, ParsedRequest& out) {
  const auto known = [&](const std::string& name) {
    const auto matches = [&](const RequestField& field) {
      return name == field.name && in_scope(field, out.kind);
    };
    return name == "modalities" || std::ranges::any_of(sampling_fields(), matches) ||
           std::ranges::any_of(input_fields(), matches) ||
           std::ranges::find(k_without_effect, name) != k_without_effect.end() ||
           std::ranges::any_of(k_unsupported,
                               [&](const auto& field) { return name == field.name; });
  };
  for (const auto& [name, value] : body.items()) {
    if (out.unknown_fields.size() >= limits::unknown_fields_logged_max) return;
    if (!known(name)) out.unknown_fields.push_back(name.substr(0, 64));
  }
}

/// A null value counts as absent.
bool given(const Json& body, const char* name) {
  const auto it = body.find(name);
  return it != body.end() && !it->is_null();
}

/// Rules between fields, checked when all have been read.
Result<void> check_together(const Json& body, const ParsedRequest& r) {
  const bool chat = r.kind == RequestKind::chat;
  if (chat && r.messages.empty()) return invalid("messages", "messages is required");
  if (!chat && r.prompts.empty()) return invalid("prompt", "prompt is required");
  if (chat && given(body, "top_logprobs") && body["top_logprobs"] != 0 &&
      (!given(body, "logprobs") || body["logprobs"] == false)) {
    return invalid("top_logprobs", "top_logprobs needs logprobs to be true");
  }
  if (r.max_tokens == 0u && !(r.echo && !chat)) {
    const std::string name =
        given(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    return invalid(name, name + " must be at least 1" + (chat ? "" : " (0 is for echo only)"));
  }
  if (r.max_tokens && r.generation.stop.min_tokens > *r.max_tokens) {
    return invalid("min_tokens", "min_tokens is " + std::to_string(r.generation.stop.min_tokens) +
                                     ", over max_tokens, which is " +
                                     std::to_string(*r.max_tokens));
  }
  if (r.stream && r.generation.prompt_logprobs >= 0) {
    return invalid("prompt_logprobs", "prompt_logprobs is not available when stream is true");
  }
  const size_t choices = std::max<size_t>(1, r.prompts.size()) * r.generation.choices;
  if (choices > limits::request_choices_max) {
    return invalid("n", "prompts times n is " + std::to_string(choices) + ", the limit is " +
                            std::to_string(limits::request_choices_max));
  }
  return {};
}

}  // namespace

Result<ParsedRequest> parse_request_body(RequestKind kind, std::string_view body) {
  JsonBudget budget;
  auto json = parse_json_body(body, budget);
  if (!json) return json.error();
  return parse_request(kind, *json, budget);
}

Result<ParsedRequest> parse_request(RequestKind kind, const Json& body, JsonBudget budget) {
  if (!body.is_object()) {
    return fail(ErrorCode::invalid_argument,
                "the body must be a JSON object, not " + describe(body));
  }
  ParsedRequest out;
  out.kind = kind;
  out.json_budget = budget;
  OUTRIDER_TRY(read_fields(sampling_fields(), body, out));
  OUTRIDER_TRY(read_fields(input_fields(), body, out));
  OUTRIDER_TRY(refuse_unsupported(body));
  OUTRIDER_TRY(check_together(body, out));
  if (kind == RequestKind::chat && !given(body, "logprobs")) out.generation.logprobs = -1;
  list_unknown_fields(body, out);
  return out;
}

std::vector<std::string> known_request_fields() {
  std::vector<std::string> names;
  for (const auto& field : sampling_fields()) names.emplace_back(field.name);
  for (const auto& field : input_fields()) names.emplace_back(field.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace outrider::gateway
