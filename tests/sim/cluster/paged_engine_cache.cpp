#include <algorithm>
#include <utility>

#include "tests/sim/cluster/block_content.hpp"
#include "tests/sim/cluster/paged_engine.hpp"

/// The prefix index and the tier below the pool, as model::Engine uses them.
namespace outrider::sim::cluster {
namespace {

/// What it would take to compute a token instead of reading its block.
constexpr std::chrono::milliseconds k_row{1};

}  // namespace

/// A choice that computes needs a row of its own to draw from, and one that scores all of its rows.
uint32_t PagedEngine::cacheable_blocks(const Running& running, const Choice& choice) const {
  const GenerationRequest& request = running.request;
  const bool scores = &choice == &running.choices.front() && request.prompt_logprobs >= 0 &&
                      running.prompt_told < request.prompt.size();
  const size_t tokens = scores ? std::max(running.prompt_told, 1u) : running.length(choice);
  return static_cast<uint32_t>((tokens - 1) / k_block_tokens);
}

BlockId PagedEngine::root_of(const std::string& tenant, const std::string& salt) const {
  return root_block_id("secret", kv_namespace_, {tenant, salt});
}

void PagedEngine::name_blocks(const Running& running, Choice& choice) {
  const size_t full = running.length(choice) / k_block_tokens;
  std::vector<int32_t> tokens(k_block_tokens);
  while (choice.chain.size() < full) {
    const size_t depth = choice.chain.size();
    for (size_t i = 0; i < k_block_tokens; ++i) {
      tokens[i] = running.token_at(choice, depth * k_block_tokens + i);
    }
    choice.chain.push_back(hasher_.child(depth == 0 ? running.root : choice.chain.back(), tokens));
    choice.contents.push_back(
        content_after(depth == 0 ? options_.twist : choice.contents.back(), tokens));
  }
}

bool PagedEngine::waits_for_tier(const Running& running, Choice& choice) {
  if (!tier_) return false;
  if (choice.reading && choice.reading->ended) leave_read(choice);
  const uint32_t usable = cacheable_blocks(running, choice);
  const uint32_t cached = cache_->index().longest(std::span(choice.chain).first(usable));
  if (!choice.reading && cached < usable) {
    choice.reading = tier_->under_way(choice.chain[cached]);
    if (!choice.reading && !choice.asked_tier) {
      choice.asked_tier = true;
      choice.reading = ask_tier(running, choice, cached, usable);
      choice.owns_read = choice.reading != nullptr;
    }
  }
  return choice.reading && running.request.kv.stop_rule != KvStopRule::best_effort;
}

std::shared_ptr<model::TierRead> PagedEngine::ask_tier(const Running& running, const Choice& choice,
                                                       uint32_t first, uint32_t end) {
  const GenerationRequest& request = running.request;
  model::TierWork::Wish wish{
      .chain = std::span(choice.chain).first(end), .owner = running.owner, .first = first};
  wish.recompute = (end - first) * k_block_tokens * k_row;
  if (request.kv.stop_rule == KvStopRule::timeout) wish.timeout = wish.recompute;
  if (request.kv_peer != 0) {
    wish.peer = {.worker = request.kv_peer,
                 .tenant = request.tenant,
                 .cache_salt = request.cache_salt,
                 .before = {}};
  }
  return tier_->read(wish, [&](uint32_t at) { return running.token_at(choice, at); });
}

void PagedEngine::leave_read(Choice& choice) {
  if (choice.owns_read) choice.reading->cancelled->store(true);
  choice.reading.reset();
  choice.owns_read = false;
}

/// What this step fills is computed, and from now on others find it.
void PagedEngine::publish(const Running& running, Choice& choice) {
  const uint32_t first = choice.kv.published();
  const uint32_t full = choice.kv.length() / k_block_tokens;
  for (uint32_t i = first; i < full; ++i) {
    write_content(choice.contents[i], memory_of(choice.kv.table()[i]));
    choice.kv.publish(choice.chain[i], running.owner);
  }
  offer(running, choice, first);
}

void PagedEngine::offer(const Running& running, const Choice& choice, uint32_t first) {
  const uint32_t end = choice.kv.published();
  if (!tier_ || first == end) return;
  tier_->used(std::span(choice.chain).first(end), first, running.root, running.retention,
              [&](uint32_t at) { return running.token_at(choice, at); });
}

std::span<std::byte> PagedEngine::memory_of(int32_t block) const {
  const size_t bytes = k_geometry.block_bytes();
  return {cache_->memory() + static_cast<size_t>(block) * bytes, bytes};
}

/// All of what it reads for the first time, and the beginning of what it has read before.
bool PagedEngine::is_right(Choice& choice) const {
  const std::span<const int32_t> table = choice.kv.table();
  bool right = true;
  for (uint32_t i = 0; i < choice.kv.published(); ++i) {
    const std::span<const std::byte> memory = memory_of(table[i]);
    const std::span<const std::byte> looked_at =
        i < choice.seen ? memory.first(sizeof(uint64_t)) : memory;
    right = right && has_content(choice.contents[i], looked_at);
  }
  choice.seen = choice.kv.published();
  return right;
}

void PagedEngine::run_errands() {
  for (Errand& errand : std::exchange(errands_, {})) errand.done(read_cached(errand.query));
}

/// As Engine::read_cached, a few at a time.
std::vector<model::CachedBlock> PagedEngine::read_cached(const model::CachedQuery& query) const {
  constexpr size_t k_blocks_at_once = 2;
  std::vector<model::CachedBlock> blocks;
  if (query.kv_namespace != kv_namespace_) return blocks;
  BlockId id = query.before.value_or(root_of(query.tenant, query.cache_salt));
  const std::span<const int32_t> tokens(query.tokens);
  uint32_t depth = query.before ? query.first : 0;
  for (; (depth + 1) * k_block_tokens <= tokens.size(); ++depth) {
    id = hasher_.child(id, tokens.subspan(size_t{depth} * k_block_tokens, k_block_tokens));
    if (depth < query.first) continue;
    const int32_t index = cache_->index().find(id);
    if (index == model::PrefixIndex::k_none || blocks.size() == k_blocks_at_once) break;
    model::CachedBlock& block = blocks.emplace_back();
    block.id = id;
    block.k.resize(k_geometry.k_bytes());
    block.v.resize(k_geometry.v_bytes());
    options_.ops->read_block(k_geometry, index, cache_->memory(), block.k.data(), block.v.data());
  }
  return blocks;
}

}  // namespace outrider::sim::cluster
