#include "model/engine.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/limits.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "model/engine_state.hpp"
#include "model/kv_namespace.hpp"

namespace outrider::model {
namespace {

/// Rows of logits in memory at a time: a vocabulary is wide.
constexpr uint32_t k_logit_rows = 64;

/// The context counts too: it ends answers. `options` have the window that is left of it.
AnswerTraits answer_traits(const LoadedModel& model, const EngineOptions& options,
                           uint32_t context) {
  std::string ends;
  for (const int32_t id : model.tokenizer->end_of_generation()) {
    ends += (ends.empty() ? "" : ",") + std::to_string(id);
  }
  return {{"weights", to_hex(model.weights.digest)},
          {"numerics", std::string(model.ops->numerics_class())},
          {"kv-kind of keys", kernels::kv_key_kind_text(options.kv_kinds)},
          {"kv-kind of values", std::string(kernels::kv_kind_name(options.kv_kinds.v))},
          {"tokenizer", to_hex(model.tokenizer->fingerprint())},
          {"chat template", to_hex(model.chat_template->source_digest())},
          {"ends of generation", ends},
          {"ctx", std::to_string(context)},
          {"local-window", std::to_string(options.local_window)}};
}

Digest256 digest_of(const AnswerTraits& traits) {
  Sha256 hash;
  hash.update("outrider engine 5\n");
  for (const auto& [name, value] : traits)
    hash.update(name).update("\n").update(value).update("\n");
  return hash.finish();
}

uint64_t owner_of(const std::string& tenant) {
  return hash64(tenant);
}

Result<void> check_range(uint32_t value, uint32_t max, const char* field) {
  if (value >= 1 && value <= max) return {};
  return fail(
      ErrorCode::invalid_argument,
      std::string(field) + " is " + std::to_string(value) + ", not 1 to " + std::to_string(max),
      field);
}

/// Blocks of the pool: what the memory holds (one more stays zero), but not more than twice what
/// all running sequences could use.
uint64_t pool_blocks(const EngineOptions& options, const kernels::KvGeometry& geometry,
                     uint32_t context) {
  const uint64_t affordable = options.kv_memory_bytes / geometry.block_bytes();
  const uint64_t blocks_per_sequence =
      (uint64_t{context} + options.block_tokens - 1) / options.block_tokens;
  const uint64_t useful = 2 * uint64_t{options.sequences} * blocks_per_sequence;
  return std::min({affordable == 0 ? 0 : affordable - 1, useful, uint64_t{INT32_MAX} - 1});
}

uint64_t absorbed_bytes_max(Duration last_step) {
  const double bytes = to_seconds(last_step) * limits::kv_copy_share * limits::kv_copy_bytes_per_s;
  return std::max(limits::kv_step_copy_bytes, static_cast<uint64_t>(bytes));
}

Result<uint32_t> choose_context(const EngineOptions& options, const ModelConfig& config) {
  if (options.context_tokens > config.context_length && !options.shortens_context) {
    return fail(ErrorCode::invalid_argument,
                "a context of " + std::to_string(options.context_tokens) +
                    " tokens is longer than the model's " + std::to_string(config.context_length),
                "context_tokens");
  }
  return options.context_tokens == 0 ? config.context_length
                                     : std::min(options.context_tokens, config.context_length);
}

}  // namespace

Engine::Engine() = default;
Engine::~Engine() = default;

Engine::State::State(std::shared_ptr<const LoadedModel> loaded, const EngineOptions& opts,
                     const Clock& time, std::unique_ptr<KvCache> kv, uint32_t context)
    : model(std::move(loaded)),
      options(opts),
      clock(time),
      context_tokens(context),
      batch_tokens(opts.batch_tokens),
      traits(answer_traits(*model, opts, context)),
      fingerprint(digest_of(traits)),
      kv_namespace(make_kv_namespace(*model, opts.kv_kinds, opts.local_window)),
      cache(std::move(kv)),
      draft_control(opts.speculation),
      transformer(model, cache->geometry(),
                  {.rows = opts.batch_tokens,
                   .logit_rows = std::min(opts.batch_tokens, k_logit_rows),
                   .sequences = opts.sequences,
                   .positions = context}) {}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const LoadedModel> model,
                                               EngineOptions options, const Clock& clock) {
  OUTRIDER_TRY(check_range(options.batch_tokens, limits::batch_tokens_max, "batch_tokens"));
  OUTRIDER_TRY(check_range(options.sequences, limits::sequences_max, "sequences"));
  OUTRIDER_TRY(check_range(options.block_tokens, 1024, "block_tokens"));
  OUTRIDER_TRY(kernels::check_kv_kinds(options.kv_kinds, model->config.head_dim));
  const auto wanted = choose_context(options, model->config);
  if (!wanted) return wanted.error();
  kernels::KvGeometry geometry = kv_geometry(model->config, options.block_tokens, options.kv_kinds);
  const uint64_t blocks = pool_blocks(options, geometry, *wanted);
  const uint64_t capacity = blocks * options.block_tokens;
  if (capacity == 0 || (capacity < options.context_tokens && !options.shortens_context)) {
    return fail(ErrorCode::invalid_argument,
                std::to_string(options.kv_memory_bytes) + " bytes of KV memory hold " +
                    std::to_string(capacity) + " tokens, not " +
                    std::to_string(std::max(options.context_tokens, options.block_tokens)),
                "kv_memory");
  }
  const auto context = static_cast<uint32_t>(std::min<uint64_t>(*wanted, capacity));
  // A window that no sequence outgrows is none: the same bits.
  if (options.local_window >= context) options.local_window = 0;
  geometry.window = options.local_window;
  auto cache = KvCache::create(model->ops, geometry, static_cast<uint32_t>(blocks));
  if (!cache) return cache.error();
  auto engine = std::unique_ptr<Engine>(new Engine());
  try {
    engine->state_ = std::make_unique<State>(std::move(model), options, clock,
                                             std::move(cache).value(), context);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::io, "no memory for the activations of a step", "batch_tokens");
  }
  if (options.decode_plan.is_automatic) {
    engine->state_->options.decode_plan.rows = choose_chunks(measure_chunk_costs(*engine, clock));
  }
  return engine;
}

Result<void> Engine::submit(RequestKey key, GenerationRequest request) {
  return submit(key, std::move(request), state_->clock.now());
}

Result<void> Engine::submit(RequestKey key, GenerationRequest request, TimePoint submitted) {
  State& s = *state_;
  OUTRIDER_CHECK(s.requests.find(key) == s.requests.end(), key.session, key.generation);
  const uint32_t waiting = stats().waiting;
  // Drafts are as many as whoever drafts has texts, whatever else waits; and what goes on here was
  // let in by a worker that is gone.
  const bool is_new = request.draft == DraftKind::none && !request.continues;
  if (waiting >= s.options.waiting && is_new) {
    return fail(ErrorCode::overloaded, std::to_string(waiting) + " choices are waiting already");
  }
  auto active = make_active_request(key, std::move(request), *s.model, s.context_tokens, *s.cache);
  if (!active) return active.error();
  active->submitted = submitted;
  if (const KvParams& kv = active->request.kv; kv.pin) {
    active->pin_until =
        kv.ttl_s == 0 ? TimePoint::max() : active->submitted + std::chrono::seconds(kv.ttl_s);
  }
  uint64_t& arrivals = active->request.continues ? s.continued : s.arrivals;
  for (Choice& choice : active->choices) choice.arrival = arrivals++;
  active->root = root_block_id(s.options.cluster_secret, s.kv_namespace,
                               {active->request.tenant, active->request.cache_salt});
  active->owner = owner_of(active->request.tenant);
  s.requests.emplace(key, std::make_unique<ActiveRequest>(std::move(active).value()));
  return {};
}

void Engine::cancel(RequestKey key) {
  const auto at = state_->requests.find(key);
  if (at != state_->requests.end()) at->second->cancelled = true;
}

void Engine::set_parked(RequestKey key, bool parked) {
  const auto at = state_->requests.find(key);
  if (at != state_->requests.end()) at->second->parked = parked;
}

bool Engine::idle() const {
  return state_->requests.empty() && (!state_->tier || state_->tier->idle());
}

std::span<const ChoiceUpdate> Engine::step() {
  State& s = *state_;
  s.now = s.clock.now();
  s.updates.clear();
  s.cache->end_pins(s.now);
  s.end_early();
  if (s.tier) s.tier->absorb(absorbed_bytes_max(s.last_step));
  const StepPlan plan = s.plan();
  s.apply(plan);
  s.build_batch(plan);
  if (!s.ids.empty()) {
    s.transformer.forward({s.ids, s.positions, s.segments}, s.cache->memory());
    s.publish_blocks(plan);
    s.transformer.wait();
    const TimePoint began = std::exchange(s.now, s.clock.now());
    s.last_step = s.now - began;
    s.read_results();
    ++s.counters.steps;
    if (s.options.speculation.depth_max > 0) s.learn_costs(began);
  }
  s.forget_finished();
  if (s.tier) s.tier->store(limits::kv_step_copy_bytes);
  if (s.tier && s.ids.empty()) s.tier->finish_copies();
  return s.updates;
}

EngineStats Engine::stats() const {
  EngineStats stats = state_->counters;
  for (const auto& [key, request] : state_->requests) {
    for (const Choice& choice : request->choices) {
      if (choice.stage == Choice::Stage::done) continue;
      if (choice.reading) ++stats.reading;
      if (request->parked) {
        ++stats.parked;
      } else {
        ++(choice.stage == Choice::Stage::running ? stats.running : stats.waiting);
      }
    }
  }
  stats.blocks_total = state_->cache->pool().total();
  stats.blocks_free = state_->cache->available();
  stats.blocks_cached = state_->cache->index().size();
  stats.blocks_pinned = state_->cache->index().pinned();
  stats.prefix_evictions = state_->cache->index().evictions();
  stats.pins_evicted = state_->cache->index().pins_evicted();
  stats.pins_ended = state_->cache->index().pins_ended();
  if (state_->tier) stats.tier = state_->tier->counters();
  stats.explored_steps = state_->draft_control.explored_steps();
  return stats;
}

const AnswerTraits& Engine::traits() const {
  return state_->traits;
}
const Digest256& Engine::fingerprint() const {
  return state_->fingerprint;
}
const Digest256& Engine::kv_namespace() const {
  return state_->kv_namespace;
}
uint32_t Engine::context_tokens() const {
  return state_->context_tokens;
}
const DecodePlan& Engine::decode_plan() const {
  return state_->options.decode_plan;
}
uint32_t Engine::local_window() const {
  return state_->options.local_window;
}

void Engine::check_conservation() const {
  std::vector<const KvSequence*> sequences;
  for (const auto& [key, request] : state_->requests) {
    for (const Choice& choice : request->choices) {
      OUTRIDER_CHECK(choice.stage == Choice::Stage::running || choice.kv.length() == 0, key.session,
                     choice.index);
      sequences.push_back(&choice.kv);
    }
  }
  if (state_->tier) std::ranges::copy(state_->tier->holders(), std::back_inserter(sequences));
  state_->cache->check_conservation(sequences);
}

void Engine::preempt_all() {
  for (const auto& [key, request] : state_->requests) {
    for (Choice& choice : request->choices) {
      if (choice.stage == Choice::Stage::running) state_->preempt({request.get(), &choice});
    }
  }
}

void Engine::evict_cached(uint32_t blocks) {
  state_->cache->evict(blocks);
}

CacheReset Engine::forget_cached(const std::optional<std::string>& tenant) {
  const auto owner = tenant ? std::optional(owner_of(*tenant)) : std::nullopt;
  state_->past_outputs.forget(owner);
  if (state_->tier) state_->tier->drop_reads(owner);
  const KvCache::Reset reset = state_->cache->forget(owner);
  if (state_->tier) state_->tier->forget_warm(tenant);
  return {reset.forgotten, reset.held};
}

void Engine::set_batch_tokens(uint32_t batch_tokens) {
  state_->batch_tokens = std::clamp(batch_tokens, 1u, state_->options.batch_tokens);
}

}  // namespace outrider::model
