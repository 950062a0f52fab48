#include <array>
#include <map>

#include "base/limits.hpp"
#include "gateway/json_values.hpp"
#include "gateway/request_fields.hpp"

namespace outrider::gateway {
namespace {

using R = ParsedRequest;

constexpr TextBounds k_name{1, limits::name_bytes_max};

Result<void> text_into(const Json& v, const char* name, TextBounds bounds, std::string& target) {
  auto text = read_text(v, name, bounds);
  if (!text) return text.error();
  target = std::move(*text);
  return {};
}

Error unsupported(const char* field, const std::string& what) {
  return fail(ErrorCode::unsupported, what, field);
}

/// Text, token ids, or a list of either.
Result<void> read_prompt(const Json& v, R& r) {
  if (v.is_string()) {
    r.prompts = {v.get<std::string>()};
    return {};
  }
  const char* expected = "a string, an array of token ids, or an array of these";
  if (!v.is_array()) return wrong_type("prompt", expected, v);
  if (v.empty()) return fail(ErrorCode::invalid_argument, "prompt must not be empty", "prompt");
  if (v[0].is_number()) {
    auto ids = read_token_ids(v, "prompt", limits::http_body_bytes_max);
    if (!ids) return ids.error();
    r.prompts = {std::move(*ids)};
    return {};
  }
  if (v.size() > limits::prompts_max) {
    return fail(ErrorCode::invalid_argument,
                "prompt has " + std::to_string(v.size()) + " entries, the limit is " +
                    std::to_string(limits::prompts_max),
                "prompt");
  }
  r.prompts_listed = true;
  for (size_t i = 0; i < v.size(); ++i) {
    const std::string name = "prompt[" + std::to_string(i) + "]";
    if (v[i].is_string()) {
      r.prompts.emplace_back(v[i].get<std::string>());
    } else if (v[i].is_array()) {
      auto ids = read_token_ids(v[i], name, limits::http_body_bytes_max);
      if (!ids) return ids.error();
      r.prompts.emplace_back(std::move(*ids));
    } else {
      return wrong_type(name, "a string or an array of token ids", v[i]);
    }
  }
  return {};
}

Result<void> read_messages(const Json& v, R& r) {
  auto messages = normalise_messages(v, r.json_budget);
  if (!messages) return messages.error();
  r.messages = std::move(*messages);
  return {};
}

Result<void> read_tools(const Json& v, R& r) {
  OUTRIDER_TRY(check_tools(v));
  if (!v.empty()) r.tools = v;
  return {};
}

Result<void> read_tool_choice(const Json& v, R& r) {
  if (v.is_string() && v == "auto") return {};
  if (v.is_string() && v == "none") {
    r.tools = nullptr;  // tool_choice is read after tools
    return {};
  }
  if (v.is_string() || v.is_object()) {
    return unsupported("tool_choice", "tool_choice can be \"none\" or \"auto\" here");
  }
  return wrong_type("tool_choice", "\"none\" or \"auto\"", v);
}

Result<void> read_response_format(const Json& v, R&) {
  if (!v.is_object() || !v.contains("type") || !v["type"].is_string()) {
    return wrong_type("response_format", "an object with a type", v);
  }
  if (v["type"] == "text") return {};
  return unsupported("response_format", "response_format can only be {\"type\":\"text\"} here");
}

Result<void> read_stream_options(const Json& v, R& r) {
  if (!v.is_object()) return wrong_type("stream_options", "an object", v);
  if (!r.stream) {
    return fail(ErrorCode::invalid_argument, "stream_options needs stream to be true",
                "stream_options");
  }
  for (const auto& [key, flag] : v.items()) {
    if (flag.is_null()) continue;
    if (key == "include_usage") {
      OUTRIDER_TRY(bool_into(flag, "stream_options.include_usage", r.include_usage));
    } else if (key == "continuous_usage_stats") {
      OUTRIDER_TRY(
          bool_into(flag, "stream_options.continuous_usage_stats", r.continuous_usage_stats));
    }
  }
  return {};
}

Result<void> read_speculation(const Json& v, R& r) {
  SpeculationParams& speculation = r.generation.speculation;
  speculation.enabled = v != "off";
  if (v == "off" || v == "auto") return {};
  if (v.is_string()) {
    return invalid("speculation",
                   "speculation must be \"off\", \"auto\" or an object with method and "
                   "depth_max; what drafts is the server's choice (--spec)");
  }
  if (!v.is_object()) return wrong_type("speculation", "\"off\", \"auto\" or an object", v);
  for (const auto& [key, value] : v.items()) {
    const std::string name = "speculation." + key.substr(0, 64);
    if (value.is_null()) continue;
    if (key == "method") {
      const auto method = read_text(value, name, k_name);
      if (!method) return method.error();
      if (*method != "exact" && *method != "reject_sampling") {
        return invalid(name.c_str(), name + " must be exact or reject_sampling");
      }
      if (*method != "exact") speculation.method = SpeculationMethod::reject_sampling;
    } else if (key == "depth_max") {
      const auto depth = read_integer(value, name, {0, limits::draft_depth_max});
      if (!depth) return depth.error();
      speculation.depth_max = static_cast<uint32_t>(*depth);
      speculation.enabled = *depth > 0;
    } else {
      return unsupported(name.c_str(), name + " is not supported; method and depth_max are");
    }
  }
  return {};
}

Result<void> read_stop_rule(const Json& v, const std::string& name, KvStopRule& rule) {
  static const std::map<std::string_view, KvStopRule> rules = {
      {"best_effort", KvStopRule::best_effort},
      {"timeout", KvStopRule::timeout},
      {"wait_complete", KvStopRule::wait_complete}};
  const auto text = read_text(v, name, k_name);
  if (!text) return text.error();
  const auto found = rules.find(*text);
  if (found == rules.end()) {
    return invalid(name, name + " must be best_effort, timeout or wait_complete");
  }
  rule = found->second;
  return {};
}

Result<void> read_kv(const Json& v, R& r) {
  if (!v.is_object()) return wrong_type("kv", "an object", v);
  KvParams& kv = r.generation.kv;
  for (const auto& [key, value] : v.items()) {
    const std::string name = "kv." + key.substr(0, 64);
    if (value.is_null()) continue;
    if (key == "stop_rule") {
      OUTRIDER_TRY(read_stop_rule(value, name, kv.stop_rule));
    } else if (key == "pin") {
      OUTRIDER_TRY(bool_into(value, name, kv.pin));
    } else if (key == "ttl_s") {
      const auto seconds = read_integer(value, name, {0, limits::kv_ttl_s_max});
      if (!seconds) return seconds.error();
      kv.ttl_s = static_cast<uint32_t>(*seconds);
    } else {
      return unsupported(name.c_str(), name + " is not supported");
    }
  }
  return {};
}

/// Checked, for clients that send it, and without effect.
Result<void> read_unused_name(const Json& v, const char* name, TextBounds bounds) {
  auto text = read_text(v, name, bounds);
  if (!text) return text.error();
  return {};
}

Result<void> read_echo(const Json& v, R& r) {
  OUTRIDER_TRY(bool_into(v, "echo", r.echo));
  if (r.echo && r.kind == RequestKind::chat) {
    return unsupported("echo", "echo is for /v1/completions only");
  }
  return {};
}

Result<void> read_best_of(const Json& v, R& r) {
  auto best_of = read_integer(v, "best_of", {1, limits::choices_max});
  if (!best_of) return best_of.error();
  if (*best_of != r.generation.choices) {
    return unsupported("best_of", "best_of must equal n here");
  }
  return {};
}

Result<void> read_suffix(const Json& v, R&) {
  if (v.is_string() && v.get_ref<const std::string&>().empty()) return {};
  return unsupported("suffix", "suffix is not supported");
}

Result<void> read_add_special_tokens(const Json& v, R& r) {
  bool flag = false;
  OUTRIDER_TRY(bool_into(v, "add_special_tokens", flag));
  r.add_special_tokens = flag;
  return {};
}

Result<void> read_template_variables(const Json& v, R& r) {
  if (!v.is_object()) return wrong_type("chat_template_kwargs", "an object", v);
  // What other fields say, where it is checked, or the model's file.
  for (const char* name :
       {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"}) {
    if (!v.contains(name)) continue;
    return invalid("chat_template_kwargs",
                   "chat_template_kwargs must not have " + std::string(name));
  }
  r.template_variables = v;
  return {};
}

const std::array k_input_fields = {
    RequestField{"model", FieldScope::both,
                 [](const Json& v, R& r) { return text_into(v, "model", k_name, r.model); }},
    RequestField{"messages", FieldScope::chat, read_messages},
    RequestField{"tools", FieldScope::chat, read_tools},
    RequestField{"tool_choice", FieldScope::chat, read_tool_choice},
    RequestField{"add_generation_prompt", FieldScope::chat,
                 [](const Json& v, R& r) {
                   return bool_into(v, "add_generation_prompt", r.add_generation_prompt);
                 }},
    RequestField{"chat_template_kwargs", FieldScope::chat, read_template_variables},
    RequestField{"prompt", FieldScope::completion, read_prompt},
    RequestField{"suffix", FieldScope::completion, read_suffix},
    RequestField{"best_of", FieldScope::completion, read_best_of},
    RequestField{"echo", FieldScope::both, read_echo},
    RequestField{"add_special_tokens", FieldScope::both, read_add_special_tokens},
    RequestField{"response_format", FieldScope::both, read_response_format},
    RequestField{"stream", FieldScope::both,
                 [](const Json& v, R& r) { return bool_into(v, "stream", r.stream); }},
    RequestField{"stream_options", FieldScope::both, read_stream_options},
    RequestField{
        "return_token_ids", FieldScope::both,
        [](const Json& v, R& r) { return bool_into(v, "return_token_ids", r.return_token_ids); }},
    RequestField{"user", FieldScope::both,
                 [](const Json& v, R&) {
                   return read_unused_name(v, "user", {0, limits::name_bytes_max});
                 }},
    RequestField{"cache_salt", FieldScope::both,
                 [](const Json& v, R& r) {
                   return text_into(v, "cache_salt", k_name, r.generation.cache_salt);
                 }},
    RequestField{"speculation", FieldScope::both, read_speculation},
    RequestField{"kv", FieldScope::both, read_kv},
};

}  // namespace

std::span<const RequestField> input_fields() {
  return k_input_fields;
}

}  // namespace outrider::gateway
