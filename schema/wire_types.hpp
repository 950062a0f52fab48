#pragma once

#include <caf/meta/type_name.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/hint_counters.hpp"
#include "base/request.hpp"
#include "base/result.hpp"

/// The parts that messages are made of. CAF corrupts floats (and hangs on infinities), so each one
/// travels as its bit pattern; decoding checks whatever a peer may have got wrong.
namespace outrider {

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RequestKey& x) {
  return f(caf::meta::type_name("RequestKey"), x.session, x.generation);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CachedTokens& x) {
  return f(caf::meta::type_name("CachedTokens"), x.all, x.warm, x.cold, x.peer);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RequestTimings& x) {
  return f(caf::meta::type_name("RequestTimings"), x.queue_us, x.prefill_us, x.decode_us,
           x.prompt_tokens, x.preemptions, x.cached, x.draft_tokens, x.accepted_tokens,
           x.pins_refused, x.pins_refused_cold, x.moves);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, HintCounters::OfSource& x) {
  return f(caf::meta::type_name("OfSource"), x.draft_tokens, x.accepted_tokens);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, HintCounters& x) {
  return f(caf::meta::type_name("HintCounters"), x.hints, x.drafts, x.draft_tokens,
           x.accepted_tokens, x.accepted_at, x.by_source);
}

}  // namespace outrider

namespace outrider::schema {

/// Why something was refused; `code` 0 means that nothing was.
struct Refusal {
  uint8_t code = 0;  ///< An ErrorCode.
  std::string message;
  std::string field;
  uint32_t retry_after_ms = 0;

  bool none() const { return code == 0; }
  ErrorCode error_code() const;  ///< An unknown number becomes `internal`.
  Error error() const { return Error{error_code(), message, field}; }
  static Refusal of(const Error& error, uint32_t retry_after_ms = 0);

  friend bool operator==(const Refusal&, const Refusal&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Refusal& x) {
  return f(caf::meta::type_name("Refusal"), x.code, x.message, x.field, x.retry_after_ms);
}

/// A Finish, or none when `reason` is 0.
struct WireFinish {
  uint8_t reason = 0;
  int32_t stop_token = -1;
  int32_t stop_string = -1;

  bool none() const { return reason == 0; }
  Finish finish() const;  ///< An unknown reason becomes `failed`.
  static WireFinish of(const Finish& finish);

  friend bool operator==(const WireFinish&, const WireFinish&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WireFinish& x) {
  return f(caf::meta::type_name("WireFinish"), x.reason, x.stop_token, x.stop_string);
}

/// Tokens with their log-probabilities. `logprobs` is empty when no token has one; else it holds
/// for each token: u8 present, and if present u32 logprob bits, u32 rank, u16 count of
/// alternatives, then for each i32 id and u32 bits. Little-endian, no padding.
struct TokenBatch {
  std::vector<int32_t> ids;
  std::string logprobs;

  friend bool operator==(const TokenBatch&, const TokenBatch&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TokenBatch& x) {
  return f(caf::meta::type_name("TokenBatch"), x.ids, x.logprobs);
}

TokenBatch encode_tokens(std::span<const TokenOut> tokens);
/// `corrupt` if the bytes do not hold exactly one entry per id.
Result<std::vector<TokenOut>> decode_tokens(const TokenBatch& batch);
/// Bytes that a token takes in a batch: what a sender adds up to stay under
/// limits::control_message_bytes_max.
size_t encoded_bytes(const TokenOut& token);

/// A GenerationRequest without its prompt and committed tokens, which travel in parts.
struct WireRequest {
  std::string id;
  uint32_t temperature_bits = 0;
  int32_t top_k = 0;
  uint32_t top_p_bits = 0;
  uint32_t min_p_bits = 0;
  uint32_t repetition_penalty_bits = 0;
  uint32_t presence_penalty_bits = 0;
  uint32_t frequency_penalty_bits = 0;
  std::vector<std::pair<int32_t, uint32_t>> logit_bias_bits;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  uint32_t choices = 1;
  int32_t logprobs = -1;
  int32_t prompt_logprobs = -1;
  int32_t priority = 0;
  uint32_t deadline_ms = 0;
  std::string tenant;
  std::string cache_salt;
  uint8_t kv_stop_rule = 0;
  bool kv_pin = false;
  uint32_t kv_ttl_s = 0;
  bool speculates = true;
  uint32_t draft_depth_max = 0;
  uint8_t draft_method = 0;
  bool continues = false;

  friend bool operator==(const WireRequest&, const WireRequest&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WireRequest& x) {
  return f(caf::meta::type_name("WireRequest"), x.id, x.temperature_bits, x.top_k, x.top_p_bits,
           x.min_p_bits, x.repetition_penalty_bits, x.presence_penalty_bits,
           x.frequency_penalty_bits, x.logit_bias_bits, x.seed, x.max_tokens, x.min_tokens,
           x.ignore_eos, x.stop_token_ids, x.stop_strings, x.include_stop_str_in_output,
           x.skip_special_tokens, x.choices, x.logprobs, x.prompt_logprobs, x.priority,
           x.deadline_ms, x.tenant, x.cache_salt, x.kv_stop_rule, x.kv_pin, x.kv_ttl_s,
           x.speculates, x.draft_depth_max, x.draft_method, x.continues);
}

WireRequest to_wire(const GenerationRequest& request);
/// The request with empty prompt and committed tokens.
GenerationRequest from_wire(const WireRequest& wire);

}  // namespace outrider::schema
