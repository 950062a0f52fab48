#include <array>

#include "base/limits.hpp"
#include "gateway/json_values.hpp"
#include "gateway/request_fields.hpp"

namespace outrider::gateway {
namespace {

template <class Target>
Result<void> number_into(const Json& v, const char* name, NumberRange range, Target& target) {
  auto number = read_number(v, name, range);
  if (!number) return number.error();
  target = *number;
  return {};
}

template <class Target>
Result<void> integer_into(const Json& v, const char* name, IntegerRange range, Target& target) {
  auto number = read_integer(v, name, range);
  if (!number) return number.error();
  target = static_cast<Target>(*number);
  return {};
}

Result<void> read_max_tokens(const Json& v, const char* name, ParsedRequest& r) {
  auto number = read_integer(v, name, ranges::max_tokens);
  if (!number) return number.error();
  r.max_tokens = static_cast<uint32_t>(*number);
  return {};
}

Result<void> read_seed(const Json& v, ParsedRequest& r) {
  if (v.is_number_unsigned()) {
    r.seed = v.get<uint64_t>();
    return {};
  }
  if (v.is_number_integer()) {
    r.seed = static_cast<uint64_t>(v.get<int64_t>());
    r.seed_is_negative = true;
    return {};
  }
  return wrong_type("seed", "an integer of 64 bits", v);
}

Result<void> read_stop(const Json& v, ParsedRequest& r) {
  const TextBounds bounds{1, limits::stop_string_bytes_max};
  auto& stops = r.generation.stop.stop_strings;
  if (v.is_string()) {
    auto text = read_text(v, "stop", bounds);
    if (!text) return text.error();
    stops = {*text};
    return {};
  }
  if (!v.is_array()) return wrong_type("stop", "a string or an array of strings", v);
  if (v.size() > limits::stop_strings_max) {
    return fail(ErrorCode::invalid_argument,
                "stop has " + std::to_string(v.size()) + " entries, the limit is " +
                    std::to_string(limits::stop_strings_max),
                "stop");
  }
  for (size_t i = 0; i < v.size(); ++i) {
    auto text = read_text(v[i], "stop[" + std::to_string(i) + "]", bounds);
    if (!text) return text.error();
    stops.push_back(*text);
  }
  return {};
}

Result<void> read_stop_token_ids(const Json& v, ParsedRequest& r) {
  auto ids = read_token_ids(v, "stop_token_ids", limits::stop_token_ids_max);
  if (!ids) return ids.error();
  r.generation.stop.stop_token_ids = *ids;
  return {};
}

/// A token id written as a JSON key: digits only, and each id in one way only.
std::optional<int32_t> id_of_key(const std::string& key) {
  if (key.empty() || key.size() > 8 || (key.size() > 1 && key[0] == '0')) return std::nullopt;
  int32_t id = 0;
  for (const char c : key) {
    if (c < '0' || c > '9') return std::nullopt;
    id = id * 10 + (c - '0');
  }
  if (id >= static_cast<int32_t>(limits::vocabulary_max)) return std::nullopt;
  return id;
}

Result<void> read_logit_bias(const Json& v, ParsedRequest& r) {
  if (!v.is_object()) return wrong_type("logit_bias", "an object of token id to bias", v);
  if (v.size() > limits::logit_bias_entries_max) {
    return fail(ErrorCode::invalid_argument,
                "logit_bias has " + std::to_string(v.size()) + " entries, the limit is " +
                    std::to_string(limits::logit_bias_entries_max),
                "logit_bias");
  }
  std::map<int32_t, float> sorted;
  for (const auto& [key, bias] : v.items()) {
    const auto id = id_of_key(key);
    if (!id) {
      return fail(ErrorCode::invalid_argument, "logit_bias has a key that is no token id",
                  "logit_bias");
    }
    auto number = read_number(bias, "logit_bias." + key, {-100, 100});
    if (!number) return number.error();
    sorted[*id] = *number;
  }
  r.generation.sampling.logit_bias.assign(sorted.begin(), sorted.end());
  return {};
}

/// Chat: a flag beside top_logprobs. Completions: the number of alternatives.
Result<void> read_logprobs(const Json& v, ParsedRequest& r) {
  auto& target = r.generation.logprobs;
  if (r.kind == RequestKind::completion) {
    return integer_into(v, "logprobs", {0, limits::top_logprobs_max}, target);
  }
  auto flag = read_bool(v, "logprobs");
  if (!flag) return flag.error();
  // top_logprobs may have been read before; an absent one means no alternatives. That logprobs is
  // there at all when top_logprobs is, the parser checks.
  target = *flag ? std::max(target, 0) : -1;
  return {};
}

using R = ParsedRequest;
constexpr FieldScope k_both = FieldScope::both;

const std::array k_sampling_fields = {
    RequestField{"temperature", k_both,
                 [](const Json& v, R& r) {
                   return number_into(v, "temperature", ranges::temperature,
                                      r.generation.sampling.temperature);
                 }},
    RequestField{"top_p", k_both,
                 [](const Json& v, R& r) {
                   return number_into(v, "top_p", ranges::top_p, r.generation.sampling.top_p);
                 }},
    RequestField{"top_k", k_both,
                 [](const Json& v, R& r) -> Result<void> {
                   auto& top_k = r.generation.sampling.top_k;
                   OUTRIDER_TRY(integer_into(v, "top_k", ranges::top_k, top_k));
                   top_k = std::max(top_k, 0);  // vLLM's -1 means all, as 0 does
                   return {};
                 }},
    RequestField{"min_p", k_both,
                 [](const Json& v, R& r) {
                   return number_into(v, "min_p", ranges::min_p, r.generation.sampling.min_p);
                 }},
    RequestField{"repetition_penalty", k_both,
                 [](const Json& v, R& r) {
                   return number_into(v, "repetition_penalty", ranges::repetition_penalty,
                                      r.generation.sampling.repetition_penalty);
                 }},
    RequestField{"presence_penalty", k_both,
                 [](const Json& v, R& r) {
                   return number_into(v, "presence_penalty", ranges::presence_penalty,
                                      r.generation.sampling.presence_penalty);
                 }},
    RequestField{"frequency_penalty", k_both,
                 [](const Json& v, R& r) {
                   return number_into(v, "frequency_penalty", ranges::frequency_penalty,
                                      r.generation.sampling.frequency_penalty);
                 }},
    RequestField{"logit_bias", k_both, read_logit_bias},
    RequestField{"seed", k_both, read_seed},
    RequestField{"n", k_both,
                 [](const Json& v, R& r) {
                   return integer_into(v, "n", {1, limits::choices_max}, r.generation.choices);
                 }},
    RequestField{"max_tokens", k_both,
                 [](const Json& v, R& r) { return read_max_tokens(v, "max_tokens", r); }},
    RequestField{
        "max_completion_tokens", k_both,
        [](const Json& v, R& r) { return read_max_tokens(v, "max_completion_tokens", r); }},
    RequestField{
        "min_tokens", k_both,
        [](const Json& v, R& r) {
          return integer_into(v, "min_tokens", {0, INT32_MAX}, r.generation.stop.min_tokens);
        }},
    RequestField{"ignore_eos", k_both,
                 [](const Json& v, R& r) {
                   return bool_into(v, "ignore_eos", r.generation.stop.ignore_eos);
                 }},
    RequestField{"stop", k_both, read_stop},
    RequestField{"stop_token_ids", k_both, read_stop_token_ids},
    RequestField{"include_stop_str_in_output", k_both,
                 [](const Json& v, R& r) {
                   return bool_into(v, "include_stop_str_in_output",
                                    r.generation.stop.include_stop_str_in_output);
                 }},
    RequestField{"skip_special_tokens", k_both,
                 [](const Json& v, R& r) {
                   return bool_into(v, "skip_special_tokens",
                                    r.generation.stop.skip_special_tokens);
                 }},
    // Before logprobs, whose chat reader looks at it.
    RequestField{"top_logprobs", FieldScope::chat,
                 [](const Json& v, R& r) {
                   return integer_into(v, "top_logprobs", {0, limits::top_logprobs_max},
                                       r.generation.logprobs);
                 }},
    RequestField{"logprobs", k_both, read_logprobs},
    RequestField{"prompt_logprobs", k_both,
                 [](const Json& v, R& r) {
                   return integer_into(v, "prompt_logprobs", {0, limits::top_logprobs_max},
                                       r.generation.prompt_logprobs);
                 }},
    RequestField{
        "priority", k_both,
        [](const Json& v, R& r) {
          return integer_into(v, "priority", {INT32_MIN, INT32_MAX}, r.generation.priority);
        }},
    RequestField{"deadline_ms", k_both,
                 [](const Json& v, R& r) {
                   return integer_into(v, "deadline_ms", {1, INT32_MAX}, r.generation.deadline_ms);
                 }},
};

}  // namespace

std::span<const RequestField> sampling_fields() {
  return k_sampling_fields;
}

}  // namespace outrider::gateway
