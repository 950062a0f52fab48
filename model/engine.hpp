#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/answer_traits.hpp"
#include "base/block_id.hpp"
#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/hint_counters.hpp"
#include "base/limits.hpp"
#include "base/request.hpp"
#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/decode_plan.hpp"
#include "model/hint_trie.hpp"
#include "model/loaded_model.hpp"
#include "model/speculation_options.hpp"
#include "model/step_probe.hpp"

namespace outrider::model {

/// Sizes of one engine. All are fixed at start: a step allocates no KV.
struct EngineOptions {
  uint32_t context_tokens = 0;    ///< Longest sequence; 0: the model's own, capped by the pool.
  bool shortens_context = false;  ///< Rather than fail where model or pool have less than that.
  uint32_t batch_tokens = 512;    ///< Rows of one step: decode rows first, then prefill chunks.
  uint32_t sequences = 64;        ///< Running sequences (choices) at once.
  uint32_t waiting = 1024;        ///< Waiting choices; beyond it `submit` says overloaded.
  uint32_t block_tokens = 16;
  uint64_t kv_memory_bytes = uint64_t{1} << 30;
  kernels::KvKinds kv_kinds;
  /// Positions that a row attends to, its own the last; 0: all. Changes answers.
  uint32_t local_window = 0;
  bool prefix_caching = true;  ///< Full blocks stay as long as memory does, for whoever wants them.
  SpeculationOptions speculation;
  DecodePlan decode_plan;      ///< Of prefill chunks. Bits do not depend on it.
  std::string cluster_secret;  ///< Keys the ids of blocks: equal ones name equal blocks equally.
};

class BlockTier;
struct StepCosts;

/// What one step did for one choice of one request. In order of token index, no gaps.
struct ChoiceUpdate {
  RequestKey key;
  uint32_t choice = 0;
  uint32_t first_index = 0;  ///< Absolute output index of tokens[0].
  std::vector<TokenOut> tokens;
  std::vector<DraftDistribution> drawn_from;  ///< Of a draft's tokens, one each.
  /// Choice 0 only, when asked for: prompt tokens from `prompt_first_index` on. The first prompt
  /// token has no logprob.
  uint32_t prompt_first_index = 0;
  std::vector<TokenOut> prompt_tokens;
  std::optional<Finish> finish;           ///< Set exactly once per choice, in its last update.
  std::string error;                      ///< Why, when it finished as `failed`.
  std::optional<RequestTimings> timings;  ///< Set with `finish`.
};

/// Of an engine's traffic with the tier below its pool.
struct TierCounters {
  uint64_t read_blocks = 0;     ///< Inserted into the pool.
  uint64_t queued_blocks = 0;   ///< Handed to the tier.
  uint64_t lost_blocks = 0;     ///< Evicted before their turn, no room, or too many waited.
  uint64_t waiting_blocks = 0;  ///< Now: it has not looked at them, or they wait for their turn.
};

/// Gauges and counters, read between steps.
struct EngineStats {
  uint32_t running = 0;  ///< Choices that hold blocks and take part in steps.
  uint32_t waiting = 0;
  uint32_t parked = 0;  ///< Choices whose reader is slow.
  uint32_t blocks_total = 0;
  uint32_t blocks_free = 0;    ///< Also those that only the prefix index holds.
  uint32_t blocks_cached = 0;  ///< In the prefix index.
  uint32_t blocks_pinned = 0;  ///< Of these, evicted last.
  uint64_t steps = 0;
  uint64_t rows =
      0;  ///< That went through the model: prefill, also of committed output, and decode.
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_queries = 0;    ///< Prompt tokens of admitted requests that may use the index.
  uint64_t prefix_hits = 0;       ///< Of these, tokens that it had.
  uint64_t prefix_evictions = 0;  ///< Blocks that it lost.
  uint64_t pins_refused = 0;      ///< Blocks that were not pinned: their share was taken.
  uint64_t pins_evicted = 0;      ///< Pinned blocks that a running sequence needed.
  uint64_t pins_ended = 0;        ///< Blocks whose pins' time came.
  uint64_t prefix_hits_warm = 0;  ///< Of the hits, tokens that the host's memory brought for them.
  uint64_t prefix_hits_cold = 0;  ///< The KV store.
  uint64_t prefix_hits_peer = 0;  ///< Another target.
  uint32_t reading = 0;           ///< Waiting choices for which the tier reads.
  TierCounters tier;
  HintCounters hints;
  uint64_t explored_steps = 0;   ///< Hints were chosen that do not pay by what is known of costs.
  bool hints_could_pay = false;  ///< In the last step, had there been enough of them, all certain.
};

/// Blocks of the prefix index.
struct CacheReset {
  uint32_t forgotten = 0;
  uint32_t held = 0;  ///< By requests: they stay.
};

/// Blocks of one beginning, for whoever has the same tokens in the same scope.
struct CachedQuery {
  Digest256 kv_namespace{};  ///< Of who asks.
  std::string tenant;
  std::string cache_salt;
  std::vector<int32_t> tokens;      ///< Of whole blocks, from the first one on.
  uint32_t first = 0;               ///< Block asked for first.
  std::optional<BlockId> before{};  ///< Of the block before it, if known: it is not hashed again.
};
/// The hot bytes, as TierBlock has them.
struct CachedBlock {
  BlockId id{};
  std::vector<std::byte> k;
  std::vector<std::byte> v;
};

/// Continuous batching over one model: submit, step, read updates. Deterministic: what a request
/// gets depends only on the request and the model, never on its batch mates (exactness contract).
/// Not thread-safe; owned by one thread (the engine loop, or a Generator's caller).
class Engine final : public StepProbe {
 public:
  /// Fails if the KV pool cannot hold one sequence of one block, or memory cannot be had. Takes
  /// seconds where the decode plan is to be measured.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const LoadedModel> model,
                                                EngineOptions options, const Clock& clock);
  ~Engine() override;

  /// Checks token ids and lengths against the model. `key` must be new.
  Result<void> submit(RequestKey key, GenerationRequest request);
  /// The same for one that has waited elsewhere since `submitted`: its times and its deadline count
  /// from then on.
  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted);
  /// Ends all choices with `cancelled` at the next step; unknown keys are ignored.
  void cancel(RequestKey key);
  /// A parked request keeps its place and (while memory allows) its blocks, but gets no rows.
  void set_parked(RequestKey key, bool parked);

  /// The output of a request, which has one choice and no stop strings, is `output` from now on:
  /// a draft goes another way. What was computed of their common beginning stays. Its next update
  /// begins behind `output`. False, and nothing has changed, if there is no such request any more,
  /// if it would end there, or for a token that the model does not know.
  bool redirect(RequestKey key, std::span<const int32_t> output);

  /// A request `fresh` like that of `key`, with one choice and no stop strings, that goes on behind
  /// `output`, too: they share the blocks of their common beginning. False, and nothing has
  /// changed, as for `redirect`, and where as many sequences run as may.
  bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output);

  /// From now on full blocks go to `tier`, and prompts are looked for there as well: a waiting
  /// request whose blocks it reads waits for them as its stop rule says. Needs prefix caching and
  /// idleness.
  void attach_tier(std::shared_ptr<BlockTier> tier);
  /// Called on the tier's threads when a step has something to take in. It must not block.
  void on_arrival(std::function<void()> wake);

  /// Forgets the blocks of a tenant, or of all, that no request holds, pinned ones too: who asks
  /// for them again computes them, or gets them from the tier. Bits do not change.
  CacheReset forget_cached(const std::optional<std::string>& tenant);

  /// Blocks of the prefix index, from the first one asked for on until one is not there; about
  /// `bytes_max` bytes of them. None for another namespace. For an engine elsewhere: bits are the
  /// same.
  std::vector<CachedBlock> read_cached(const CachedQuery& query, uint64_t bytes_max) const;

  /// What steps take here: by it the depth of drafts is chosen, and what is worth reading from the
  /// tier. Without, nothing is drafted unless the depth is fixed, and nothing is too slow to read.
  void set_step_costs(const StepCosts& costs);
  /// The same, as steps have been of late. Valid until the next step.
  const StepCosts& step_costs() const;
  /// What somebody expects `choice` to go on with. Kept until the text says otherwise; whatever it
  /// says, output stays the same.
  HintOutcome hint(RequestKey key, uint32_t choice, const Hint& hint);

  /// No request, and nothing on its way to the tier.
  bool idle() const;
  /// Runs at most one batch. The updates are valid until the next call.
  std::span<const ChoiceUpdate> step();

  EngineStats stats() const;
  /// All that output depends on: weights, numerics class, KV kinds, tokenizer, context.
  const AnswerTraits& traits() const;
  /// Their digest.
  const Digest256& fingerprint() const;
  /// What its blocks mean: part of their names.
  const Digest256& kv_namespace() const;
  uint32_t context_tokens() const;
  const DecodePlan& decode_plan() const;
  uint32_t local_window() const override;  ///< 0 also where the context is no longer.
  /// free + used = total, every count matches the sequences' tables. Aborts if not.
  void check_conservation() const;

  /// For the exactness harness: forces what memory pressure would do. Bits do not change.
  void preempt_all();
  /// Forgets up to so many blocks that only the prefix index holds. Bits do not change.
  void evict_cached(uint32_t blocks);
  /// The token budget of the next steps, for the harness and the bench. Bits do not change.
  void set_batch_tokens(uint32_t batch_tokens);
  uint32_t batch_tokens() const override;

  /// Of an idle engine. Keys and values of the context are noise: zeros would cost kinds with
  /// scales less than what they hold in use.
  Duration time_step(uint32_t rows, uint32_t context, uint32_t sampled) override;
  uint32_t probe_tokens_max() const override;

 private:
  Engine();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider::model
