#include <algorithm>
#include <cstring>

#include "model/engine_state.hpp"

/// Prefix caching: which blocks a choice finds in the index instead of computing them, and which
/// ones it adds. Names are computed when a prompt comes and when a block fills.
namespace outrider::model {
namespace {

/// What the scheduler compares; 0 is its word for none.
uint64_t short_name(const BlockId& id) {
  uint64_t bits = 0;
  std::memcpy(&bits, id.data(), sizeof(bits));
  return std::max<uint64_t>(bits, 1);
}

}  // namespace

/// All full blocks of the tokens known so far.
void Engine::State::name_blocks(const ActiveRequest& request, Choice& choice) {
  const uint32_t full = request.length(choice) / options.block_tokens;
  while (choice.chain.size() < full) {
    const auto first = static_cast<uint32_t>(choice.chain.size()) * options.block_tokens;
    block_ids.clear();
    for (uint32_t i = 0; i < options.block_tokens; ++i) {
      block_ids.push_back(request.token_at(choice, first + i));
    }
    choice.chain.push_back(
        hasher.child(choice.chain.empty() ? request.root : choice.chain.back(), block_ids));
  }
}

/// Only for those that lack more than a row: decoding costs nothing here. Running ones take what
/// others have computed since; waiting ones are told to the scheduler as if they had.
void Engine::State::find_cached(ActiveRequest& request, Choice& choice, SequenceView& view) {
  choice.cached_blocks = 0;
  if (view.length - view.computed <= 1 || (view.running && view.parked)) return;
  name_blocks(request, choice);
  const uint32_t usable = request.cacheable_tokens(choice) / options.block_tokens;
  const bool at_boundary = view.computed % options.block_tokens == 0;
  if (at_boundary && usable > choice.kv.published()) {
    const std::span<const BlockId> chain = std::span(choice.chain).first(usable);
    const uint32_t cached = cache->index().longest(chain);
    if (view.running) {
      take_cached(request, choice, cached);
      view.computed = choice.kv.length();
      view.blocks = static_cast<uint32_t>(choice.kv.table().size());
      view.exclusive_blocks = choice.kv.exclusive_blocks();
    } else {
      choice.cached_blocks = cached;
      view.computed = cached * options.block_tokens;
      view.blocks = cache->held(chain.first(cached));
    }
  }
  const uint32_t next = view.computed / options.block_tokens;
  if (next >= choice.chain.size()) return;
  view.next_block = short_name(choice.chain[next]);
  view.joins = at_boundary && next < usable;
}

/// The choice goes on with the leading `blocks` of the index.
void Engine::State::take_cached(ActiveRequest& request, Choice& choice, uint32_t blocks) {
  const bool first_time = choice.index == 0 && request.preemptions == 0;
  if (first_time && !request.admitted && !request.wants_prompt_logprobs()) {
    counters.prefix_queries += request.prompt_size();
  }
  const uint32_t had = choice.kv.published();
  if (blocks <= had) return;
  const uint32_t before = choice.kv.length();
  choice.kv.take(std::span(choice.chain).subspan(had, blocks - had));
  pin(request, choice, had);
  if (!first_time) return;
  offer(request, choice, had, blocks);
  const uint32_t prompt = request.prompt_size();
  const uint32_t taken = std::min(choice.kv.length(), prompt) - std::min(before, prompt);
  request.cached.all += taken;
  counters.prefix_hits += taken;
  // What was read for it is there when it is admitted; what it joins later, others have computed.
  if (request.admitted) return;
  uint32_t left = taken;
  const auto brought_by = [&](TierLevel level) {
    const uint32_t tokens = std::min(left, request.read_tokens[static_cast<size_t>(level)]);
    left -= tokens;
    return tokens;
  };
  request.cached.warm = brought_by(TierLevel::warm);
  request.cached.cold = brought_by(TierLevel::cold);
  request.cached.peer = brought_by(TierLevel::peer);
  counters.prefix_hits_warm += request.cached.warm;
  counters.prefix_hits_cold += request.cached.cold;
  counters.prefix_hits_peer += request.cached.peer;
}

/// Blocks that this step filled with known tokens: from now on others find them.
void Engine::State::publish_blocks(const StepPlan& plan) {
  for (const PlannedRows& planned : plan.rows) {
    const Scheduled& entry = scheduled[planned.sequence];
    publish(*entry.request, *entry.choice);
  }
}

void Engine::State::publish(ActiveRequest& request, Choice& choice) {
  const uint32_t known = std::min(choice.kv.length(), request.length(choice));
  const uint32_t full = known / options.block_tokens;
  const uint32_t before = choice.kv.published();
  if (!options.prefix_caching || before == full) return;
  name_blocks(request, choice);
  while (choice.kv.published() < full) {
    choice.kv.publish(choice.chain[choice.kv.published()], request.owner);
  }
  pin(request, choice, before);
  offer(request, choice, before, full);
}

/// Its published blocks from `first` on: each block of a choice comes by once while it runs, the
/// first one first.
void Engine::State::pin(ActiveRequest& request, const Choice& choice, uint32_t first) {
  if (!request.pin_until || *request.pin_until <= now) return;
  for (const int32_t block : choice.kv.table().subspan(first, choice.kv.published() - first)) {
    if (cache->pin(block, *request.pin_until)) continue;
    ++counters.pins_refused;
    ++request.pins_refused;
  }
}

std::vector<CachedBlock> Engine::read_cached(const CachedQuery& query, uint64_t bytes_max) const {
  const State& s = *state_;
  std::vector<CachedBlock> blocks;
  if (query.kv_namespace != s.kv_namespace || query.tokens.size() > s.context_tokens) return blocks;
  const uint32_t block_tokens = s.options.block_tokens;
  const kernels::KvGeometry& geometry = s.cache->geometry();
  BlockHasher hasher;
  BlockId id = root_block_id(s.options.cluster_secret, s.kv_namespace,
                             {.tenant = query.tenant, .salt = query.cache_salt});
  uint64_t bytes = 0;
  const std::span<const int32_t> tokens(query.tokens);
  uint32_t depth = 0;
  if (query.before) {
    id = *query.before;
    depth = query.first;
  }
  for (; (depth + 1) * block_tokens <= tokens.size(); ++depth) {
    id = hasher.child(id, tokens.subspan(size_t{depth} * block_tokens, block_tokens));
    if (depth < query.first) continue;
    const int32_t index = s.cache->index().find(id);
    if (index == PrefixIndex::k_none || bytes >= bytes_max) break;
    CachedBlock& block = blocks.emplace_back();
    block.id = id;
    block.k.resize(geometry.k_bytes());
    block.v.resize(geometry.v_bytes());
    s.model->ops->read_block(geometry, index, s.cache->memory(), block.k.data(), block.v.data());
    bytes += geometry.block_bytes();
  }
  return blocks;
}

}  // namespace outrider::model
