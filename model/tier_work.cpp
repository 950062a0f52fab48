#include "model/tier_work.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::model {

namespace {

/// Memory that only these blocks have: a warm tier has its own.
uint64_t size_of(std::span<const TierLoadedBlock> blocks) {
  uint64_t size = 0;
  for (const TierLoadedBlock& block : blocks) {
    if (block.level != TierLevel::warm) size += block.k.size() + block.v.size();
  }
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
  publish_all();
  collect();
  const uint64_t block_bytes = cache_.geometry().block_bytes();
  uint64_t copied = 0;
  uint64_t taken = 0;
  while (!arrived_.empty() && copied < bytes_max) {
    if (entering_blocks() * block_bytes >= limits::kv_copies_bytes_max) break;
    const Arrival arrival = std::move(arrived_.front());
    arrived_.pop_front();
    if (!arrival.blocks.empty()) copied += insert(arrival.read, arrival.blocks) * block_bytes;
    taken += size_of(arrival.blocks);
    if (!arrival.done) continue;
    if (Entering* const entering = entering_of(*arrival.read)) {
      entering->done = true;
    } else {
      end(*arrival.read);
    }
  }
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->bytes -= std::min(mailbox_->bytes, taken);
}

size_t TierWork::entering_blocks() const {
  size_t blocks = 0;
  for (const Entering& entering : entering_) blocks += entering.blocks.size();
  return blocks;
}

TierWork::Entering* TierWork::entering_of(const TierRead& read) {
  const auto found = std::ranges::find_if(
      entering_, [&](const Entering& entering) { return entering.read.get() == &read; });
  return found == entering_.end() ? nullptr : &*found;
}

/// As a sequence of its own that ends here: the blocks stay in the index, the youngest idle ones.
/// Returns how many were copied meanwhile.
size_t TierWork::insert(const std::shared_ptr<TierRead>& read,
                        std::span<const TierLoadedBlock> blocks) {
  size_t copied = 0;
  const kernels::KvGeometry& geometry = cache_.geometry();
  const std::span<const BlockId> chain(read->chain);
  const uint32_t have = cache_.index().longest(chain);
  Entering* entering = entering_of(*read);
  if (entering == nullptr) {
    entering = &entering_.emplace_back(Entering{.read = read, .sequence = KvSequence(cache_)});
  }
  KvSequence& sequence = entering->sequence;
  for (const TierLoadedBlock& block : blocks) {
    if (read->next < have && sequence.length() == 0) {
      ++read->next;  // computed meanwhile
      continue;
    }
    // Its ancestors may have gone, or all that is left belongs to others: the rest is of no use.
    const bool fits = block.k.size() == geometry.k_bytes() && block.v.size() == geometry.v_bytes();
    const bool holds = sequence.length() != 0;
    const bool asked = read->next < chain.size();
    if (read->cancelled->load() || !fits || !asked || (!holds && have < read->next)) {
      read->cancelled->store(true);
      break;
    }
    if (!holds) sequence.take(chain.first(read->next));
    if (!sequence.append(geometry.block_tokens)) {
      read->cancelled->store(true);
      break;
    }
    Entering::Block& next = entering->blocks.emplace_back(Entering::Block{block, nullptr});
    const int32_t to = sequence.table().back();
    if (block.level == TierLevel::warm) {
      next.copy =
          ops_->start_write_block(geometry, to, block.k.data(), block.v.data(), cache_.memory());
    } else {
      ops_->write_block(geometry, to, block.k.data(), block.v.data(), cache_.memory());
    }
    if (!next.copy) ++copied;
    ++read->next;
  }
  publish_all();
  return copied;
}

/// Those that are there, in the order of their chain.
void TierWork::publish(Entering& entering) {
  TierRead& read = *entering.read;
  while (!entering.blocks.empty()) {
    const Entering::Block& next = entering.blocks.front();
    if (next.copy && !next.copy->is_done()) return;
    entering.sequence.publish(read.chain[entering.sequence.published()], read.owner);
    ++read.inserted[static_cast<size_t>(next.from.level)];
    ++counters_.read_blocks;
    entering.blocks.pop_front();
  }
}

void TierWork::publish_all() {
  for (auto at = entering_.begin(); at != entering_.end();) {
    publish(*at);
    if (!at->blocks.empty()) {
      ++at;
      continue;
    }
    if (at->done) end(*at->read);
    at = entering_.erase(at);
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

/// Begins to copy one out; false: it is not in the pool any more, or there is no room for it.
bool TierWork::start_leaving(const TierOffer& offer) {
  const kernels::KvGeometry& geometry = cache_.geometry();
  const int32_t index = cache_.index().find(offer.block.id);
  if (index == PrefixIndex::k_none) return false;
  const bool is_leaving = std::ranges::any_of(
      leaving_, [&](const Leaving& other) { return other.offer.block.id == offer.block.id; });
  if (is_leaving && !offer.wants.cold) return true;
  Leaving leaving{.offer = offer, .held = nullptr, .copy = nullptr};
  TierBlock& block = leaving.offer.block;
  const size_t k_bytes = geometry.k_bytes();
  const size_t v_bytes = geometry.v_bytes();
  WarmRoom warm;
  if (offer.wants.warm) warm = tier_->warm_room(block.id, k_bytes + v_bytes);
  if (warm.is_there && !offer.wants.cold) return true;
  if (const auto& memory = warm.memory) {
    leaving.copy = ops_->start_read_block(geometry, index, cache_.memory(), memory.get(),
                                          memory.get() + k_bytes);
    if (leaving.copy) leaving.held = hold(index);
    block.k = SharedBytes(memory, {memory.get(), k_bytes});
    block.v = SharedBytes(memory, {memory.get() + k_bytes, v_bytes});
  } else {
    leaving.offer.wants.warm = false;
    if (!offer.wants.cold) return false;
    std::vector<std::byte> k(k_bytes), v(v_bytes);
    ops_->read_block(geometry, index, cache_.memory(), k.data(), v.data());
    block.k = std::move(k);
    block.v = std::move(v);
  }
  leaving_.push_back(std::move(leaving));
  return true;
}

/// Whoever holds a block holds its ancestors: those of the last one that leaves are held already.
std::shared_ptr<KvSequence> TierWork::hold(int32_t block) const {
  std::shared_ptr<KvSequence> held = leaving_.empty() ? nullptr : leaving_.back().held;
  if (!held || held->table().back() != cache_.index().parent(block)) {
    held = std::make_shared<KvSequence>(cache_);
  }
  held->take_up_to(block);
  return held;
}

/// A record is more than its block.
bool TierWork::has_room() const {
  return tier_->room() >= 2 * cache_.geometry().block_bytes();
}

void TierWork::leave(TierOffer offer) {
  if (!start_leaving(offer)) ++counters_.lost_blocks;
}

/// To the cold level, from wherever they are by now.
void TierWork::pay_owed() {
  constexpr int k_of_a_step = 16;
  for (int i = 0; i < k_of_a_step && !owed_.empty() && has_room(); ++i) {
    TierOffer offer = std::move(owed_.front());
    owed_.pop_front();
    offer.wants = tier_->touch({&offer.block.id, 1}, offer.retention).front();
    offer.wants.warm = false;
    if (offer.wants.cold) leave(std::move(offer));
  }
}

/// Until there is room; too many are lost.
void TierWork::owe(const TierOffer& offer) {
  if (owed_.size() < limits::kv_outgoing_blocks_max) {
    owed_.push_back(offer);
  } else {
    ++counters_.lost_blocks;
  }
}

/// A store that is slow holds up what goes to it, and nothing else.
void TierWork::store(uint64_t bytes_max) {
  const uint64_t block_bytes = cache_.geometry().block_bytes();
  hand_over();
  pay_owed();
  for (uint64_t copied = 0; copied < bytes_max; offers_->wanted.pop()) {
    const TierOffer* next = offers_->wanted.front();
    if (next == nullptr || leaving_.size() * block_bytes >= limits::kv_copies_bytes_max) return;
    TierOffer offer = *next;
    if (offer.wants.cold && !has_room()) {
      if (!offer.wants.warm) return;
      offer.wants.cold = false;
      if (offer.retention->asked_for()) owe(offer);
    }
    const size_t before = leaving_.size();
    leave(std::move(offer));
    if (leaving_.size() > before && !leaving_.back().copy) copied += block_bytes;
    hand_over();
  }
}

/// What is there goes to the tier.
void TierWork::hand_over() {
  while (!leaving_.empty()) {
    Leaving& first = leaving_.front();
    if (first.copy && !first.copy->is_done()) return;
    ++counters_.queued_blocks;
    tier_->put(kv_namespace_, cache_.geometry().layers, std::move(first.offer));
    leaving_.pop_front();
  }
}

void TierWork::finish_copies() {
  for (const Leaving& leaving : leaving_) {
    if (leaving.copy) leaving.copy->wait();
  }
  for (const Entering& entering : entering_) {
    for (const Entering::Block& block : entering.blocks) {
      if (block.copy) block.copy->wait();
    }
  }
  hand_over();
  publish_all();
}

void TierWork::drop_reads(std::optional<uint64_t> owner) {
  finish_copies();
  const auto is_meant = [&](const TierRead& read) { return !owner || read.owner == *owner; };
  std::vector<std::shared_ptr<TierRead>> reads;
  for (const auto& [id, read] : wanted_) {
    if (is_meant(*read)) reads.push_back(read);
  }
  // What comes from now on comes without blocks; what came before is there when it is collected.
  for (const auto& read : reads) read->cancelled->store(true);
  collect();
  uint64_t dropped = 0;
  std::erase_if(arrived_, [&](const Arrival& arrival) {
    if (!is_meant(*arrival.read)) return false;
    dropped += size_of(arrival.blocks);
    return true;
  });
  for (const auto& read : reads) end(*read);
  const std::lock_guard lock(mailbox_->mutex);
  mailbox_->bytes -= std::min(mailbox_->bytes, dropped);
}

void TierWork::forget_warm(const std::optional<std::string>& tenant) {
  tier_->forget_warm(tenant);
}

std::vector<const KvSequence*> TierWork::holders() const {
  std::vector<const KvSequence*> out;
  for (const Leaving& leaving : leaving_) {
    const KvSequence* const held = leaving.held.get();
    if (held != nullptr && (out.empty() || out.back() != held)) out.push_back(held);
  }
  for (const Entering& entering : entering_) out.push_back(&entering.sequence);
  return out;
}

}  // namespace outrider::model
