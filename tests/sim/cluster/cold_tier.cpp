#include "tests/sim/cluster/cold_tier.hpp"

#include <algorithm>
#include <utility>

#include "kvstore/record.hpp"

namespace outrider::sim::cluster {
namespace {

constexpr size_t k_records_max = 64;
constexpr uint64_t k_queue_bytes = 8 << 10;
/// Until the store's thread has looked.
constexpr std::chrono::microseconds k_look{200};

uint64_t bytes_of(const model::TierLoad& load) {
  return load.blocks.size() * load.block_bytes;
}

}  // namespace

void Disk::write(const BlockId& id, std::vector<std::byte> record) {
  if (records.insert_or_assign(id, std::move(record)).second) order.push_back(id);
  if (order.size() <= k_records_max) return;
  records.erase(order.front());
  order.pop_front();
}

/// Blocks that were promised, one after the other.
struct ColdTier::Read {
  model::TierLoad load;
  model::TierHandlers handlers;
  TimePoint begun{0};
  TimePoint first{0};  ///< When the first one was there.
  size_t next = 0;
  uint64_t bytes = 0;
};

ColdTier::~ColdTier() {
  if (writes_.empty() || !random_.chance(0.5f)) return;
  std::vector<std::byte> half = std::move(writes_.front().record);
  half.resize(half.size() / 2);
  disk_->write(writes_.front().id, std::move(half));
}

Duration ColdTier::disk_time() {
  return Duration(random_.between(disk_->least.count(), disk_->most.count()));
}

void ColdTier::look() {
  if (std::exchange(is_looking_, true)) return;
  time_.after(k_look, [it = weak_from_this()] {
    const auto self = it.lock();
    if (!self) return;
    self->is_looking_ = false;
    settle(*self->offers_, *self);
  });
}

std::vector<model::TierWants> ColdTier::touch(
    std::span<const BlockId> chain, const std::shared_ptr<const model::TierRetention>& retention) {
  std::vector<bool> wanted = admission_.touch(chain, retention->asked_for());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool is_stored = disk_->records.contains(chain[i]) ||
                           std::ranges::find(writes_, chain[i], &Write::id) != writes_.end();
    wanted[i] = wanted[i] && !is_stored;
  }
  return model::cold_wants(wanted);
}

void ColdTier::put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) {
  model::TierBlock& block = offer.block;
  kvstore::Block record{.ns = kv_namespace,
                        .id = block.id,
                        .parent = block.parent,
                        .depth = block.depth,
                        .tokens = std::move(block.tokens),
                        .tensors = {}};
  record.tensors.push_back({"k", layers, std::move(block.k)});
  record.tensors.push_back({"v", layers, std::move(block.v)});
  auto bytes = kvstore::encode(record);
  if (!bytes || bytes->size() > room()) {
    was_overfull_ = true;
    return;
  }
  queued_bytes_ += bytes->size();
  writes_.push_back({block.id, std::move(*bytes)});
  if (writes_.size() == 1) write_next();
}

uint64_t ColdTier::room() const {
  return k_queue_bytes - queued_bytes_;
}

void ColdTier::write_next() {
  time_.after(disk_time(), [it = weak_from_this()] {
    const auto self = it.lock();
    if (!self) return;
    Write write = std::move(self->writes_.front());
    self->writes_.pop_front();
    self->queued_bytes_ -= write.record.size();
    if (!self->disk_->fails) self->disk_->write(write.id, std::move(write.record));
    if (!self->writes_.empty()) self->write_next();
    if (self->offers_) self->offers_->wake();  // there is room
  });
}

void ColdTier::load(model::TierLoad load, model::TierHandlers handlers) {
  const auto missing = std::ranges::find_if(
      load.blocks, [&](const auto& wanted) { return !disk_->records.contains(wanted.id); });
  load.blocks.erase(missing, load.blocks.end());
  const kvstore::LoadSize size{.bytes = bytes_of(load), .queued_bytes = reading_bytes_};
  const Duration predicted = kvstore::predicted_load(speed_, size);
  const bool is_too_slow = load.recompute && !kvstore::worth_loading(predicted, *load.recompute);
  if (load.blocks.empty() || is_too_slow) return handlers.done();
  reading_bytes_ += size.bytes;
  auto read = std::make_shared<Read>();
  read->load = std::move(load);
  read->handlers = std::move(handlers);
  read->begun = time_.now();
  read_next(read);
}

void ColdTier::end(const std::shared_ptr<Read>& read) {
  reading_bytes_ -= bytes_of(read->load);
  if (read->next > 0) {
    const Duration took = time_.now() - read->begun;
    speed_ = kvstore::after_load(speed_, read->bytes, took, read->first - read->begun);
  }
  read->handlers.done();
}

void ColdTier::read_next(const std::shared_ptr<Read>& read) {
  const bool is_late = read->load.timeout && time_.now() - read->begun > *read->load.timeout;
  const bool is_cancelled = read->load.cancelled && read->load.cancelled->load();
  if (read->next == read->load.blocks.size() || is_late || is_cancelled) return end(read);
  time_.after(disk_time(), [it = weak_from_this(), read] {
    const auto self = it.lock();
    if (!self) return;
    const model::TierLoad::Wanted& wanted = read->load.blocks[read->next];
    const auto found = self->disk_->records.find(wanted.id);
    if (self->disk_->fails || found == self->disk_->records.end()) return self->end(read);
    const auto bytes = std::make_shared<const std::vector<std::byte>>(found->second);
    const auto record = kvstore::decode(*bytes);
    const bool is_it = record && record->ns == read->load.kv_namespace && record->id == wanted.id &&
                       record->tokens == wanted.tokens && record->tensors.size() == 2;
    if (!is_it) return self->end(read);
    if (read->next++ == 0) read->first = self->time_.now();
    read->bytes += bytes->size();
    ++self->loaded_;
    read->handlers.blocks({{SharedBytes(bytes, record->tensors[0].bytes),
                            SharedBytes(bytes, record->tensors[1].bytes), model::TierLevel::cold}});
    self->read_next(read);
  });
}

}  // namespace outrider::sim::cluster
