#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "model/engine_state.hpp"

/// The tier below the pool, as the engine's requests see it: what those that wait read from it, and
/// which blocks are offered to it.
namespace outrider::model {

void Engine::attach_tier(std::shared_ptr<BlockTier> tier) {
  State& s = *state_;
  OUTRIDER_CHECK(s.options.prefix_caching && idle());
  s.tier = std::make_unique<TierWork>(std::move(tier), s.model->ops, *s.cache, s.kv_namespace);
}

void Engine::on_arrival(std::function<void()> wake) {
  if (state_->tier) state_->tier->on_arrival(std::move(wake));
}

/// Whether a choice that waits should not be scheduled yet. The pool's index has its first
/// `cached_blocks`; what follows is asked for once in each stay in the queue, unless somebody
/// else's read brings it.
bool Engine::State::waits_for_tier(ActiveRequest& request, Choice& choice) {
  if (!tier || choice.stage != Choice::Stage::waiting || request.parked) return false;
  if (choice.reading && choice.reading->ended) leave_read(request, choice);
  const uint32_t usable = request.cacheable_tokens(choice) / options.block_tokens;
  const uint32_t cached = choice.cached_blocks;
  if (!choice.reading && cached < usable && usable <= choice.chain.size()) {
    choice.reading = tier->under_way(choice.chain[cached]);
    if (!choice.reading && !choice.asked_tier) {
      choice.asked_tier = true;
      choice.reading = ask_tier(request, choice, cached, usable);
      choice.owns_read = choice.reading != nullptr;
    }
  }
  return choice.reading && request.request.kv.stop_rule != KvStopRule::best_effort;
}

std::shared_ptr<TierRead> Engine::State::ask_tier(const ActiveRequest& request,
                                                  const Choice& choice, uint32_t first,
                                                  uint32_t end) {
  TierWork::Wish wish{
      .chain = std::span(choice.chain).first(end), .owner = request.owner, .first = first};
  if (draft_control.costs().prefill_row_ns > 0) {
    wish.recompute = draft_control.costs().prefill((end - first) * options.block_tokens,
                                                   first * options.block_tokens);
  }
  if (request.request.kv.stop_rule == KvStopRule::timeout) wish.timeout = wish.recompute;
  if (request.request.kv_peer != 0) {
    wish.peer = {.worker = request.request.kv_peer,
                 .tenant = request.request.tenant,
                 .cache_salt = request.request.cache_salt,
                 .before = {}};
  }
  return tier->read(wish, [&](uint32_t at) { return request.token_at(choice, at); });
}

/// It goes on with what is there. Nobody else needs to have what only it asked for.
void Engine::State::leave_read(ActiveRequest& request, Choice& choice) {
  if (!choice.reading) return;
  if (choice.owns_read) {
    choice.reading->cancelled->store(true);
    for (size_t level = 0; level < k_tier_levels; ++level) {
      request.read_tokens[level] += choice.reading->inserted[level] * options.block_tokens;
    }
  }
  choice.reading.reset();
  choice.owns_read = false;
}

/// Blocks `first` … `end` - 1 of the choice were computed or found.
void Engine::State::offer(const ActiveRequest& request, const Choice& choice, uint32_t first,
                          uint32_t end) {
  if (!tier || first == end) return;
  tier->used(std::span(choice.chain).first(end), first, request.root, request.retention,
             [&](uint32_t at) { return request.token_at(choice, at); });
}

}  // namespace outrider::model
