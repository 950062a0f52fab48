#include "schema/wire_types.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.hpp"

namespace outrider::schema {
namespace {

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

float value(uint32_t bits) {
  return std::bit_cast<float>(bits);
}

template <class T>
void append(std::string& out, T item) {
  const size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &item, sizeof(T));
}

constexpr size_t k_logprob_bytes = sizeof(uint32_t) + sizeof(uint32_t) + sizeof(uint16_t);
constexpr size_t k_alternative_bytes = sizeof(int32_t) + sizeof(uint32_t);

void append_logprob(std::string& out, const TokenLogprob& logprob) {
  append(out, bits(logprob.logprob));
  append(out, logprob.rank);
  append(out, static_cast<uint16_t>(logprob.top.size()));
  for (const auto& [id, top] : logprob.top) {
    append(out, id);
    append(out, bits(top));
  }
}

std::optional<TokenLogprob> read_logprob(ByteReader& reader) {
  const auto logprob = reader.read<uint32_t>();
  const auto rank = reader.read<uint32_t>();
  const auto count = reader.read<uint16_t>();
  if (!logprob || !rank || !count) return std::nullopt;
  // Checked before anything is allocated for it.
  if (reader.remaining() < *count * k_alternative_bytes) return std::nullopt;
  TokenLogprob out{value(*logprob), *rank, {}};
  out.top.reserve(*count);
  for (uint32_t i = 0; i < *count; ++i) {
    const int32_t id = *reader.read<int32_t>();
    out.top.emplace_back(id, value(*reader.read<uint32_t>()));
  }
  return out;
}

}  // namespace

ErrorCode Refusal::error_code() const {
  const bool known = code >= static_cast<uint8_t>(ErrorCode::invalid_argument) &&
                     code <= static_cast<uint8_t>(ErrorCode::internal);
  return known ? static_cast<ErrorCode>(code) : ErrorCode::internal;
}

Refusal Refusal::of(const Error& error, uint32_t retry_after_ms) {
  return {static_cast<uint8_t>(error.code), error.message, error.field, retry_after_ms};
}

Finish WireFinish::finish() const {
  const bool known = reason >= static_cast<uint8_t>(FinishReason::stop) &&
                     reason <= static_cast<uint8_t>(FinishReason::failed);
  return {known ? static_cast<FinishReason>(reason) : FinishReason::failed, stop_token,
          stop_string};
}

WireFinish WireFinish::of(const Finish& finish) {
  return {static_cast<uint8_t>(finish.reason), finish.stop_token, finish.stop_string};
}

size_t encoded_bytes(const TokenOut& token) {
  size_t bytes = sizeof(int32_t) + 1;
  if (token.logprob) bytes += k_logprob_bytes + token.logprob->top.size() * k_alternative_bytes;
  return bytes;
}

TokenBatch encode_tokens(std::span<const TokenOut> tokens) {
  TokenBatch batch;
  batch.ids.reserve(tokens.size());
  for (const TokenOut& token : tokens) batch.ids.push_back(token.id);
  const bool any =
      std::any_of(tokens.begin(), tokens.end(), [](const TokenOut& t) { return t.logprob; });
  if (!any) return batch;
  for (const TokenOut& token : tokens) {
    batch.logprobs.push_back(token.logprob ? '\1' : '\0');
    if (token.logprob) append_logprob(batch.logprobs, *token.logprob);
  }
  return batch;
}

Result<std::vector<TokenOut>> decode_tokens(const TokenBatch& batch) {
  std::vector<TokenOut> tokens;
  tokens.reserve(batch.ids.size());
  for (const int32_t id : batch.ids) tokens.push_back({id, std::nullopt});
  if (batch.logprobs.empty()) return tokens;
  ByteReader reader(std::as_bytes(std::span(batch.logprobs)));
  for (TokenOut& token : tokens) {
    const auto present = reader.read<uint8_t>();
    if (!present || *present > 1) return fail(ErrorCode::corrupt, "a token batch ends early");
    if (*present == 0) continue;
    token.logprob = read_logprob(reader);
    if (!token.logprob) return fail(ErrorCode::corrupt, "a log-probability ends early");
  }
  if (reader.remaining() != 0) {
    return fail(ErrorCode::corrupt, "a token batch has bytes after its last token");
  }
  return tokens;
}

// The structured bindings below name every field, so that one added to base/request.hpp does not
// compile until it travels too.

WireRequest to_wire(const GenerationRequest& request) {
  const auto& [id, prompt, committed, sampling, stop, choices, logprobs, prompt_logprobs, priority,
               deadline_ms, tenant, cache_salt, kv, speculation, continues, draft, kv_peer] =
      request;
  const auto& [temperature, top_k, top_p, min_p, repetition, presence, frequency, logit_bias,
               seed] = sampling;
  const auto& [max_tokens, min_tokens, ignore_eos, stop_ids, stop_strings, include_stop,
               skip_special] = stop;
  const auto& [stop_rule, pin, ttl_s] = kv;
  const auto& [speculates, depth_max, method] = speculation;
  (void)prompt;
  (void)committed;
  (void)draft;
  (void)kv_peer;
  WireRequest wire;
  wire.id = id;
  wire.temperature_bits = bits(temperature);
  wire.top_k = top_k;
  wire.top_p_bits = bits(top_p);
  wire.min_p_bits = bits(min_p);
  wire.repetition_penalty_bits = bits(repetition);
  wire.presence_penalty_bits = bits(presence);
  wire.frequency_penalty_bits = bits(frequency);
  for (const auto& [token, bias] : logit_bias) wire.logit_bias_bits.emplace_back(token, bits(bias));
  wire.seed = seed;
  wire.max_tokens = max_tokens;
  wire.min_tokens = min_tokens;
  wire.ignore_eos = ignore_eos;
  wire.stop_token_ids = stop_ids;
  wire.stop_strings = stop_strings;
  wire.include_stop_str_in_output = include_stop;
  wire.skip_special_tokens = skip_special;
  wire.choices = choices;
  wire.logprobs = logprobs;
  wire.prompt_logprobs = prompt_logprobs;
  wire.priority = priority;
  wire.deadline_ms = deadline_ms;
  wire.tenant = tenant;
  wire.cache_salt = cache_salt;
  wire.kv_stop_rule = static_cast<uint8_t>(stop_rule);
  wire.kv_pin = pin;
  wire.kv_ttl_s = ttl_s;
  wire.speculates = speculates;
  wire.draft_depth_max = depth_max;
  wire.draft_method = static_cast<uint8_t>(method);
  wire.continues = continues;
  return wire;
}

GenerationRequest from_wire(const WireRequest& wire) {
  GenerationRequest request;
  request.id = wire.id;
  SamplingParams& sampling = request.sampling;
  sampling.temperature = value(wire.temperature_bits);
  sampling.top_k = wire.top_k;
  sampling.top_p = value(wire.top_p_bits);
  sampling.min_p = value(wire.min_p_bits);
  sampling.repetition_penalty = value(wire.repetition_penalty_bits);
  sampling.presence_penalty = value(wire.presence_penalty_bits);
  sampling.frequency_penalty = value(wire.frequency_penalty_bits);
  for (const auto& [token, bias] : wire.logit_bias_bits) {
    sampling.logit_bias.emplace_back(token, value(bias));
  }
  sampling.seed = wire.seed;
  StopParams& stop = request.stop;
  stop.max_tokens = wire.max_tokens;
  stop.min_tokens = wire.min_tokens;
  stop.ignore_eos = wire.ignore_eos;
  stop.stop_token_ids = wire.stop_token_ids;
  stop.stop_strings = wire.stop_strings;
  stop.include_stop_str_in_output = wire.include_stop_str_in_output;
  stop.skip_special_tokens = wire.skip_special_tokens;
  request.choices = wire.choices;
  request.logprobs = wire.logprobs;
  request.prompt_logprobs = wire.prompt_logprobs;
  request.priority = wire.priority;
  request.deadline_ms = wire.deadline_ms;
  request.continues = wire.continues;
  request.tenant = wire.tenant;
  request.cache_salt = wire.cache_salt;
  // Of a rule or a method that it does not know an engine makes the default.
  const bool knows_rule = wire.kv_stop_rule >= 1 && wire.kv_stop_rule <= k_kv_stop_rules;
  if (knows_rule) request.kv.stop_rule = static_cast<KvStopRule>(wire.kv_stop_rule);
  request.kv.pin = wire.kv_pin;
  request.kv.ttl_s = wire.kv_ttl_s;
  request.speculation = {wire.speculates, wire.draft_depth_max};
  const bool knows_method = wire.draft_method >= 1 && wire.draft_method <= k_speculation_methods;
  if (knows_method) request.speculation.method = static_cast<SpeculationMethod>(wire.draft_method);
  return request;
}

}  // namespace outrider::schema
