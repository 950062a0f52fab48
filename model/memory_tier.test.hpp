#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/ops.hpp"
#include "model/block_tier.hpp"

namespace outrider::model {

/// To share.
inline std::shared_ptr<std::byte> host_memory(kernels::Ops& ops, size_t bytes) {
  kernels::Ops::Buffer memory = ops.allocate_host(bytes);
  const auto release = memory.get_deleter();
  return {memory.release(), release};
}

/// A tier that keeps everything in a map, and gives what was asked for when the test says so.
class MemoryTier final : public BlockTier {
 public:
  struct Stored {
    Digest256 kv_namespace{};
    TierBlock block;
    TierRetention retention;
  };

  void serve(std::shared_ptr<TierOffers> made) override { offers = std::move(made); }
  void look() override {
    if (!blind) settle(*offers, *this);
  }
  std::vector<TierWants> touch(std::span<const BlockId> chain,
                               const std::shared_ptr<const TierRetention>& retention) override {
    std::vector<TierWants> wants;
    for (const BlockId& id : chain) {
      const bool often = ++touches[id] >= 2;
      const bool wanted = !stored.contains(id) && (often || retention->asked_for());
      const bool wanted_cold = is_cold_too && retention->asked_for() && !stored_cold.contains(id);
      wants.push_back(
          {.warm = wanted && warm != nullptr, .cold = (wanted && warm == nullptr) || wanted_cold});
    }
    return wants;
  }
  void put(const Digest256& kv_namespace, uint32_t, TierOffer offer) override {
    const BlockId id = offer.block.id;
    if (is_cold_too && offer.wants.cold) stored_cold.insert(id);
    for (SharedBytes* bytes : {&offer.block.k, &offer.block.v}) {  // As a store does: others' wait.
      *bytes = std::vector<std::byte>(bytes->begin(), bytes->end());
    }
    stored[id] = {kv_namespace, std::move(offer.block), *offer.retention};
  }
  WarmRoom warm_room(const BlockId& id, size_t bytes) override {
    if (!warm) return {};
    if (stored.contains(id)) return {.memory = nullptr, .is_there = true};
    return {.memory = host_memory(*warm, bytes)};
  }
  uint64_t room() const override { return room_bytes; }
  void retain(std::vector<BlockId> ids, const TierRetention& retention) override {
    for (const BlockId& id : ids) {
      if (const auto at = stored.find(id); at != stored.end()) at->second.retention = retention;
    }
  }
  void forget_warm(const std::optional<std::string>& tenant) override {
    std::erase_if(stored, [&](const auto& entry) {
      return warm && (!tenant || entry.second.retention.tenant == *tenant);
    });
  }
  void load(TierLoad load, TierHandlers handlers) override {
    ++loads;
    recompute = load.recompute;
    timeout = load.timeout;
    peer = load.peer;
    Pending pending{std::move(handlers), {}, std::move(load.cancelled)};
    for (const TierLoad::Wanted& wanted : load.blocks) {
      const auto at = stored.find(wanted.id);
      if (at == stored.end() || at->second.kv_namespace != load.kv_namespace ||
          at->second.block.tokens != wanted.tokens) {
        break;
      }
      pending.blocks.push_back(std::make_shared<TierBlock>(at->second.block));
    }
    if (pending.blocks.empty()) return pending.handlers.done();
    waiting.push_back(std::move(pending));
  }

  /// Gives up to so many blocks of the oldest load; its end with the last one.
  void deliver(size_t count) {
    Pending& next = waiting.front();
    std::vector<TierLoadedBlock> blocks;
    while (count-- > 0 && !next.blocks.empty() && !next.cancelled->load()) {
      const std::shared_ptr<TierBlock> block = std::move(next.blocks.front());
      next.blocks.pop_front();
      blocks.push_back({block->k, block->v, warm ? TierLevel::warm : TierLevel::cold});
    }
    if (!blocks.empty()) next.handlers.blocks(std::move(blocks));
    if (next.blocks.empty() || next.cancelled->load()) end();
  }
  void end() {
    waiting.front().handlers.done();
    waiting.pop_front();
  }

  struct Pending {
    TierHandlers handlers;
    std::deque<std::shared_ptr<TierBlock>> blocks;
    std::shared_ptr<const std::atomic<bool>> cancelled;
  };
  std::shared_ptr<TierOffers> offers;
  std::shared_ptr<kernels::Ops> warm;  ///< whose memory it is in; null: it is the cold level
  bool is_cold_too = false;            ///< as well as the warm one
  std::set<BlockId> stored_cold;
  bool blind = false;  ///< it looks at nothing
  std::map<BlockId, Stored> stored;
  std::map<BlockId, int> touches;
  std::deque<Pending> waiting;
  std::optional<Duration> recompute, timeout;  ///< of the last load
  std::optional<TierPeer> peer;                ///< likewise
  uint32_t loads = 0;
  uint64_t room_bytes = UINT64_MAX;
};

}  // namespace outrider::model
