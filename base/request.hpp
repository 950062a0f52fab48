#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What a generation request is, for every layer: the gateway fills it, messages carry it, the
/// engine obeys it. Token ids are int32 everywhere.
namespace outrider {

/// How each next token is chosen. Defaults are OpenAI's; `validate` is the gateway's job.
struct SamplingParams {
  float temperature = 1.0f;         ///< 0 short-circuits to argmax, lowest id wins a tie.
  int32_t top_k = 0;                ///< 0: all.
  float top_p = 1.0f;               ///< Smallest prefix of descending probability reaching it.
  float min_p = 0.0f;               ///< Relative to the most probable token.
  float repetition_penalty = 1.0f;  ///< Over prompt and output (CTRL's rule).
  float presence_penalty = 0.0f;    ///< Over output only.
  float frequency_penalty = 0.0f;   ///< Over output only.
  std::vector<std::pair<int32_t, float>> logit_bias;  ///< Sorted by id, ids unique.
  uint64_t seed = 0;                                  ///< Choice i of n samples with seed + i.

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

/// When a choice ends.
struct StopParams {
  uint32_t max_tokens = 16;
  uint32_t min_tokens = 0;  ///< Stop ids and EOS are masked out before this many.
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop_strings;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;  ///< Of the text that stop strings are looked for in.

  friend bool operator==(const StopParams&, const StopParams&) = default;
};

/// How long a request waits for keys and values that a slower tier holds.
enum class KvStopRule : uint8_t {
  timeout = 1,    ///< As long as it would take to compute them.
  best_effort,    ///< Not at all: what has come when its turn comes.
  wait_complete,  ///< Until all have come.
};

inline constexpr uint8_t k_kv_stop_rules = 3;

/// What a request asks of the KV pool and of the store below it, if there is one, for its full
/// blocks. In the pool a pin is evicted last; what runs comes first.
struct KvParams {
  KvStopRule stop_rule = KvStopRule::timeout;
  bool pin = false;    ///< Pinned in the pool; stored at once, where they never make room.
  uint32_t ttl_s = 0;  ///< Their pin in the pool ends then; stored at once, dropped then. 0: never.

  friend bool operator==(const KvParams&, const KvParams&) = default;
};

/// How a drafted token is verified.
enum class SpeculationMethod : uint8_t {
  exact = 1,        ///< Taken if it is what is drawn anyway: drafts change speed, and nothing else.
  reject_sampling,  ///< By what it was drawn from: right in distribution, not token by token.
};

inline constexpr uint8_t k_speculation_methods = 2;

/// How far drafting may go for one request.
struct SpeculationParams {
  bool enabled = true;
  uint32_t depth_max = 0;  ///< Hints that a step verifies of a choice; 0: as many as the engine.
  SpeculationMethod method = SpeculationMethod::exact;

  friend bool operator==(const SpeculationParams&, const SpeculationParams&) = default;
};

/// Identity of one attempt to serve one request. A session that is placed again raises the
/// generation; messages of an older generation are dropped.
struct RequestKey {
  uint64_t session = 0;
  uint32_t generation = 0;

  friend bool operator==(const RequestKey&, const RequestKey&) = default;
  friend auto operator<=>(const RequestKey&, const RequestKey&) = default;
};

/// Whether a request's tokens are drafts for another engine.
enum class DraftKind : uint8_t {
  none,
  same_noise,  ///< Each is what that engine would choose of this row, told with the other likely.
  drawn,       ///< Each is drawn with noise of its own, and told with what it was drawn from.
};

/// A validated, tokenized request. `committed` holds output tokens that an earlier attempt already
/// delivered (then `choices` is 1): the engine continues after them, bit for bit.
struct GenerationRequest {
  std::string id;               ///< What the client sees, e.g. "chatcmpl-…"; for logs.
  std::vector<int32_t> prompt;  ///< At least one token.
  std::vector<int32_t> committed;
  SamplingParams sampling;
  StopParams stop;
  uint32_t choices = 1;          ///< `n`
  int32_t logprobs = -1;         ///< -1 none; else number of top alternatives (0..20).
  int32_t prompt_logprobs = -1;  ///< Likewise, for the prompt's own tokens.
  int32_t priority = 0;          ///< Lower is earlier, among those of its tenant.
  uint32_t deadline_ms = 0;      ///< What is left of it from here on; 0: none.
  std::string tenant;            ///< Owner of the API key; scope of sharing and of fairness.
  std::string cache_salt;
  KvParams kv;
  SpeculationParams speculation;
  bool continues = false;  ///< Was let in once: it waits before others, and none is too many.
  DraftKind draft = DraftKind::none;  ///< Set by a draft for itself: it does not travel.
  uint64_t kv_peer = 0;  ///< Worker that may have its blocks; 0: none. Set by a target for itself.

  friend bool operator==(const GenerationRequest&, const GenerationRequest&) = default;
};

/// Whether what was drafted has a say in what the request gets. Greedy ones need none.
inline bool verifies_by_rejection(const GenerationRequest& request) {
  return request.speculation.method == SpeculationMethod::reject_sampling &&
         request.sampling.temperature > 0.0f;
}

/// Log-probability of one token under the model's own distribution (before penalties, bias,
/// temperature and filters), with the most probable alternatives, best first.
struct TokenLogprob {
  float logprob = 0;
  uint32_t rank = 0;  ///< 1 is the most probable.
  std::vector<std::pair<int32_t, float>> top;

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

/// One committed token, or one prompt token when it stands in `prompt_logprobs`.
struct TokenOut {
  int32_t id = 0;
  std::optional<TokenLogprob> logprob;

  friend bool operator==(const TokenOut&, const TokenOut&) = default;
};

/// Why a choice ended. Each choice ends exactly once.
enum class FinishReason : uint8_t {
  stop = 1,   ///< EOS, a stop id or a stop string.
  length,     ///< max_tokens, or the context is full.
  cancelled,  ///< The client gave up.
  deadline_exceeded,
  failed,  ///< See the error.
};

/// "stop", "length", … as in OpenAI's finish_reason and in metric labels.
std::string_view to_string(FinishReason reason);

/// The end of one choice.
struct Finish {
  FinishReason reason = FinishReason::stop;
  int32_t stop_token = -1;   ///< The token id that ended it, if one did.
  int32_t stop_string = -1;  ///< Index into stop_strings, if one matched.

  friend bool operator==(const Finish&, const Finish&) = default;
};

/// Of a prompt, tokens whose KV was there already.
struct CachedTokens {
  uint32_t all = 0;
  uint32_t warm = 0;  ///< Of these, what came from memory of the host for this request.
  uint32_t cold = 0;  ///< From the store.
  uint32_t peer = 0;  ///< From another target.

  /// Found in the pool.
  uint32_t device() const { return all - warm - cold - peer; }
  CachedTokens& operator+=(const CachedTokens& other) {
    all += other.all;
    warm += other.warm;
    cold += other.cold;
    peer += other.peer;
    return *this;
  }

  friend bool operator==(const CachedTokens&, const CachedTokens&) = default;
};

/// What a request cost. Times in microseconds.
struct RequestTimings {
  uint64_t queue_us = 0;
  uint64_t prefill_us = 0;
  uint64_t decode_us = 0;
  uint32_t prompt_tokens = 0;
  uint32_t preemptions = 0;
  CachedTokens cached;
  uint32_t draft_tokens = 0;       ///< Hints that were verified.
  uint32_t accepted_tokens = 0;    ///< Of these, those that came true.
  uint32_t pins_refused = 0;       ///< Blocks that it asked to pin, and the pool does not: no room.
  uint32_t pins_refused_cold = 0;  ///< The same of the store, as far as that has got.

  uint32_t moves = 0;  ///< Times that it, or a choice of it, went on at another target.

  friend bool operator==(const RequestTimings&, const RequestTimings&) = default;
};

}  // namespace outrider
