#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/request.hpp"
#include "base/result.hpp"
#include "model/draft_control.hpp"
#include "model/kv_cache.hpp"
#include "model/loaded_model.hpp"
#include "model/sampler.hpp"
#include "model/stopping.hpp"
#include "model/tier_work.hpp"

/// The engine's own record of a request: internal to engine*.cpp.
namespace outrider::model {

/// One choice. Everything but `kv` and `stage` is a pure function of the request and `output`, so
/// a preempted choice goes on as if nothing had happened.
struct Choice {
  enum class Stage : uint8_t {
    dormant,  ///< Forks from choice 0 once the prompt is computed.
    waiting,  ///< No blocks.
    running,
    done,
  };

  explicit Choice(KvCache& cache) : kv(cache) {}

  uint32_t index = 0;
  Stage stage = Stage::waiting;
  uint64_t arrival = 0;
  KvSequence kv;
  std::vector<BlockId> chain;  ///< Ids of its leading full blocks, as far as they were needed.
  uint32_t cached_blocks = 0;  ///< Waiting: leading ones that the index had in this step.
  std::shared_ptr<TierRead> reading;  ///< Waiting: what is under way, for it or for another.
  bool owns_read = false;             ///< It asked for `reading`.
  bool asked_tier = false;            ///< In this stay in the queue.
  std::unique_ptr<Drafts> drafts;     ///< Since it decodes and somebody drafts.
  std::vector<int32_t> output;
  TokenCounts counts;                ///< Kept only where the penalties need it.
  std::unique_ptr<TextStream> text;  ///< Kept only where there are stop strings.
  std::optional<size_t> update;      ///< Of this step.
};

/// One request with its choices. Owned by the engine.
struct ActiveRequest {
  RequestKey key;
  GenerationRequest request;
  uint32_t max_tokens = 0;      ///< Clipped to the context.
  std::vector<int32_t> enders;  ///< Sorted: ids that end a choice, masked before min_tokens.
  std::vector<Choice> choices;
  std::optional<Finish> over;  ///< Known at submit: nothing is left to sample.
  bool parked = false;
  bool cancelled = false;
  uint32_t prompt_scored = 0;  ///< Prompt tokens already reported with their logprobs.
  uint32_t preemptions = 0;
  BlockId root{};                ///< Parent of its first block.
  uint64_t owner = 0;            ///< Of its blocks in the index: its tenant.
  CachedTokens cached;           ///< Taken from the index before any preemption.
  uint32_t draft_tokens = 0;     ///< Hints verified.
  uint32_t accepted_tokens = 0;  ///< Of these, those that came true.
  std::array<uint32_t, k_tier_levels> read_tokens{};  ///< That came from the tier for it.
  std::shared_ptr<const TierRetention> retention;
  std::optional<TimePoint> pin_until;  ///< Its blocks are pinned in the pool, too.
  uint32_t pins_refused = 0;           ///< By the pool; those of the tier are in `retention`.
  TimePoint submitted{};
  std::optional<TimePoint> admitted;
  std::optional<TimePoint> first_token;

  uint32_t prompt_size() const { return static_cast<uint32_t>(request.prompt.size()); }
  bool wants_prompt_logprobs() const { return request.prompt_logprobs >= 0; }
  bool is_draft() const { return request.draft != DraftKind::none; }
  bool done() const;
  bool forks_pending() const;
  /// Tokens whose keys must be in the cache before the choice can go on.
  uint32_t length(const Choice& choice) const;
  int32_t token_at(const Choice& choice, uint32_t position) const;
  /// Leading tokens that the choice may find in the cache: not the last one, whose row gives the
  /// next token, and no row that gives the logprob of a prompt token.
  uint32_t cacheable_tokens(const Choice& choice) const;
  /// Ids that may not be chosen once the output has `ahead` more tokens.
  std::span<const int32_t> forbidden(const Choice& choice, size_t ahead = 0) const;
  /// Replaces the output of a choice that has no stop strings.
  void set_output(Choice& choice, std::span<const int32_t> output) const;
  /// Appends `id` to the output; the end of the choice if this token is the last.
  std::optional<Finish> commit(Choice& choice, int32_t id);
  RequestTimings timings(TimePoint now) const;
};

/// Checks a request against model and context and replays its committed tokens.
Result<ActiveRequest> make_active_request(RequestKey key, GenerationRequest request,
                                          const LoadedModel& model, uint32_t context_tokens,
                                          KvCache& cache);

}  // namespace outrider::model
