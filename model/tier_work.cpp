#include "model/tier_work.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::model {

namespace {

uint64_t size_of(std::span<const TierLoadedBlock> blocks) {
  uint64_t size = 0;
  for (const TierLoadedBlock& block : blocks) size += block.k.size() + block.v.size();
  return size;
}

}  // namespace

/// What an engine does not fetch soon enough ends its read: memory is bounded, and nobody waits.
void TierWork::Mailbox::push(Arrival arrival) {
  uint64_t size = size_of(arrival.blocks);
  const std::lock_guard lock(mutex);
  if (closed) return;
  if (bytes + size > limits::kv_arrivals_bytes_max || arrival.read->cancelled->load()) {
    arrival.read->cancelled->store(true);
    arrival.blocks.clear();
    size = 0;
  }
  bytes += size;
  if (!arrival.blocks.empty() || arrival.done) arrivals.push_back(std::move(arrival));
  if (wake) wake();
}

TierWork::TierWork(std::shared_ptr<BlockTier> tier, std::shared_ptr<kernels::Ops> ops,
                   KvCache& cache, const Digest256& kv_namespace, size_t outgoing_max)
    : tier_(std::move(tier)), ops_(std::move(ops)), cache_(cache), kv_namespace_(kv_namespace) {
  const auto wake = [mailbox = mailbox_] {
    const std::lock_guard lock(mailbox->mutex);
    if (mailbox->wake) mailbox->wake();
  };
  offers_ = std::make_shared<TierOffers>(outgoing_max, cache.geometry().block_tokens, wake);
  tier_->serve(offers_);
}

TierWork::~TierWork() {
  for (const auto& [id, read] : wanted_) read->cancelled->store(true);
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->closed = true;
  mailbox_->wake = nullptr;
  mailbox_->arrivals.clear();
}

void TierWork::on_arrival(std::function<void()> wake) {
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->wake = std::move(wake);
}

std::shared_ptr<TierRead> TierWork::under_way(const BlockId& id) const {
  const auto found = wanted_.find(id);
  return found == wanted_.end() ? nullptr : found->second;
}

TierCounters TierWork::counters() const {
  TierCounters counters = counters_;
  counters.lost_blocks += offers_->lost;
  counters.waiting_blocks = outgoing();
  return counters;
}

void TierWork::read_tokens(uint32_t block, const std::function<int32_t(uint32_t)>& token,
                           std::vector<int32_t>& tokens) const {
  const uint32_t block_tokens = cache_.geometry().block_tokens;
  tokens.resize(block_tokens);
  for (uint32_t i = 0; i < block_tokens; ++i) tokens[i] = token(block * block_tokens + i);
}

std::shared_ptr<TierRead> TierWork::read(const Wish& wish,
                                         const std::function<int32_t(uint32_t)>& token) {
  auto read = std::make_shared<TierRead>();
  read->chain.assign(wish.chain.begin(), wish.chain.end());
  read->owner = wish.owner;
  read->next = wish.first;
  TierLoad load{.kv_namespace = kv_namespace_,
                .layers = cache_.geometry().layers,
                .block_bytes = cache_.geometry().block_bytes(),
                .peer = wish.peer,
                .recompute = wish.recompute,
                .timeout = wish.timeout,
                .cancelled = read->cancelled};
  if (load.peer) {
    const uint32_t before = wish.first * cache_.geometry().block_tokens;
    for (uint32_t at = 0; at < before; ++at) load.peer->before.push_back(token(at));
  }
  for (auto i = wish.first; i < wish.chain.size(); ++i) {
    load.blocks.push_back({wish.chain[i], {}});
    read_tokens(i, token, load.blocks.back().tokens);
  }
  // Only a call before `load` returns looks at `nothing`; `returned` is of this thread then.
  auto returned = std::make_shared<std::atomic<bool>>(false);
  auto nothing = std::make_shared<std::atomic<bool>>(false);
  tier_->load(std::move(load),
              {.blocks =
                   [mailbox = mailbox_, read](std::vector<TierLoadedBlock> blocks) {
                     mailbox->push({read, std::move(blocks), false});
                   },
               .done =
                   [mailbox = mailbox_, read, returned, nothing] {
                     if (!returned->load()) nothing->store(true);
                     mailbox->push({read, {}, true});
                   }});
  returned->store(true);
  if (nothing->load()) {
    collect();
    const bool empty = std::none_of(arrived_.begin(), arrived_.end(), [&](const Arrival& arrival) {
      return arrival.read == read && !arrival.blocks.empty();
    });
    if (empty) return nullptr;
  }
  for (auto i = wish.first; i < wish.chain.size(); ++i) wanted_.emplace(wish.chain[i], read);
  return read;
}

void TierWork::collect() {
  std::vector<Arrival> arrivals;
  {
    const std::lock_guard lock(mailbox_->mutex);
    arrivals.swap(mailbox_->arrivals);
  }
  std::move(arrivals.begin(), arrivals.end(), std::back_inserter(arrived_));
}

void TierWork::absorb(uint64_t bytes_max) {
  collect();
  uint64_t bytes = 0;
  while (!arrived_.empty() && bytes < bytes_max) {
    const Arrival arrival = std::move(arrived_.front());
    arrived_.pop_front();
    if (!arrival.blocks.empty()) insert(*arrival.read, arrival.blocks);
    bytes += size_of(arrival.blocks);
    if (arrival.done) end(*arrival.read);
  }
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->bytes -= std::min(mailbox_->bytes, bytes);
}

/// As a sequence of its own that ends here: the blocks stay in the index, the youngest idle ones.
void TierWork::insert(TierRead& read, std::span<const TierLoadedBlock> blocks) {
  const kernels::KvGeometry& geometry = cache_.geometry();
  const std::span<const BlockId> chain(read.chain);
  const uint32_t have = cache_.index().longest(chain);
  KvSequence sequence(cache_);
  for (const TierLoadedBlock& block : blocks) {
    if (read.next < have && sequence.length() == 0) {
      ++read.next;  // computed meanwhile
      continue;
    }
    // Its ancestors may have gone, or all that is left belongs to others: the rest is of no use.
    const bool fits = block.k.size() == geometry.k_bytes() && block.v.size() == geometry.v_bytes();
    const bool holds = sequence.length() != 0;
    const bool asked = read.next < chain.size();
    if (read.cancelled->load() || !fits || !asked || (!holds && have < read.next)) {
      return read.cancelled->store(true);
    }
    if (!holds) sequence.take(chain.first(read.next));
    if (!sequence.append(geometry.block_tokens)) return read.cancelled->store(true);
    ops_->write_block(geometry, sequence.table().back(), block.k.data(), block.v.data(),
                      cache_.memory());
    sequence.publish(chain[read.next++], read.owner);
    ++read.inserted;
    ++counters_.read_blocks;
  }
}

void TierWork::end(TierRead& read) {
  if (read.ended) return;
  read.ended = true;
  for (const BlockId& id : read.chain) {
    const auto found = wanted_.find(id);
    if (found != wanted_.end() && found->second.get() == &read) wanted_.erase(found);
  }
}

void TierWork::used(std::span<const BlockId> chain, uint32_t first, const BlockId& root,
                    const std::shared_ptr<const TierRetention>& retention,
                    const std::function<int32_t(uint32_t)>& token) {
  for (auto depth = first; depth < chain.size(); ++depth) {
    TierOffer* offer = offers_->made.free_slot();
    if (offer == nullptr) {
      ++counters_.lost_blocks;
      continue;
    }
    offer->block.id = chain[depth];
    offer->block.parent = depth == 0 ? root : chain[depth - 1];
    offer->block.depth = depth;
    read_tokens(depth, token, offer->block.tokens);
    offer->retention = retention;
    offers_->made.push();
  }
  tier_->look();
}

void TierWork::store(uint64_t bytes_max) {
  const kernels::KvGeometry& geometry = cache_.geometry();
  for (uint64_t bytes = 0; bytes < bytes_max; offers_->wanted.pop()) {
    const TierOffer* next = offers_->wanted.front();
    if (next == nullptr || tier_->room() < 2 * geometry.block_bytes()) return;  // a record is more
    const int32_t index = cache_.index().find(next->block.id);
    if (index == PrefixIndex::k_none) {
      ++counters_.lost_blocks;
      continue;
    }
    TierBlock block = next->block;
    block.k.resize(geometry.k_bytes());
    block.v.resize(geometry.v_bytes());
    ops_->read_block(geometry, index, cache_.memory(), block.k.data(), block.v.data());
    bytes += geometry.block_bytes();
    ++counters_.queued_blocks;
    tier_->put(kv_namespace_, geometry.layers, std::move(block), *next->retention);
  }
}

}  // namespace outrider::model
