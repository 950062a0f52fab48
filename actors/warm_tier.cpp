#include "actors/warm_tier.hpp"

#include <algorithm>
#include <utility>

#include "actors/offer_thread.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using kvstore::WarmBlock;
using model::TierWants;

/// The block's bytes, which stay in their slot as long as anybody has them.
SharedBytes bytes_of(const std::shared_ptr<const WarmBlock>& block, const SharedBytes& bytes) {
  return {block, {bytes.data(), bytes.size()}};
}

class WarmTier final : public model::BlockTier {
 public:
  WarmTier(std::shared_ptr<kvstore::WarmStore> store, std::shared_ptr<model::BlockTier> below)
      : store_(std::move(store)), below_(std::move(below)) {}

  void serve(std::shared_ptr<model::TierOffers> offers) override {
    thread_.start("warm tier", std::move(offers), *this);
  }
  void look() override { thread_.look(); }

  std::vector<TierWants> touch(
      std::span<const BlockId> chain,
      const std::shared_ptr<const model::TierRetention>& retention) override {
    const std::vector<bool> here = store_->touch(chain);
    std::vector<TierWants> wants =
        below_ ? below_->touch(chain, retention) : std::vector<TierWants>(chain.size());
    for (size_t i = 0; i < chain.size(); ++i) {
      wants[i].warm = !here[i];
      if (!wants[i].cold || !here[i]) continue;
      // What is to be kept is offered as if it were new: the engine owes it until there is room.
      wants[i].cold = !goes_down(chain[i], retention) && retention->asked_for();
      wants[i].warm = wants[i].cold;
    }
    return wants;
  }

  void put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) override {
    model::TierBlock& block = offer.block;
    if (offer.wants.warm) {
      store_->put({.ns = kv_namespace,
                   .id = block.id,
                   .parent = block.parent,
                   .depth = block.depth,
                   .layers = layers,
                   .tenant = offer.retention->tenant,
                   .tokens = block.tokens,
                   .k = std::exchange(block.k, {}),
                   .v = std::exchange(block.v, {})});
      if (offer.wants.cold) goes_down(block.id, offer.retention);
    } else if (below_) {
      below_->put(kv_namespace, layers, std::move(offer));
    }
  }

  model::WarmRoom warm_room(const BlockId& id, size_t bytes) override {
    if (store_->find(id)) return {.memory = nullptr, .is_there = true};
    if (bytes > store_->slot_bytes()) return {};
    return {.memory = store_->slot()};
  }

  uint64_t room() const override { return below_ ? below_->room() : UINT64_MAX; }

  void retain(std::vector<BlockId> ids, const model::TierRetention& retention) override {
    if (below_) below_->retain(std::move(ids), retention);
  }

  void load(model::TierLoad load, model::TierHandlers handlers) override {
    const size_t all = load.blocks.size();
    const size_t batch =
        std::max<size_t>(1, limits::kv_step_copy_bytes / std::max<uint64_t>(1, load.block_bytes));
    std::vector<model::TierLoadedBlock> blocks;
    size_t found = 0;
    for (; found < all; ++found) {
      const model::TierLoad::Wanted& wanted = load.blocks[found];
      const auto block = store_->find(load.kv_namespace, wanted.id, wanted.tokens);
      if (!block || block->layers != load.layers) break;
      blocks.push_back(
          {bytes_of(block, block->k), bytes_of(block, block->v), model::TierLevel::warm});
      if (blocks.size() == batch) handlers.blocks(std::exchange(blocks, {}));
    }
    if (!blocks.empty()) handlers.blocks(std::move(blocks));
    if (found == all || !below_) return handlers.done();
    load.blocks.erase(load.blocks.begin(),
                      load.blocks.begin() + static_cast<std::ptrdiff_t>(found));
    const auto left = static_cast<double>(all - found) / static_cast<double>(all);
    const auto rest = [&](Duration time) {
      return Duration(static_cast<Duration::rep>(static_cast<double>(time.count()) * left));
    };
    if (load.recompute) load.recompute = rest(*load.recompute);
    if (load.timeout) load.timeout = rest(*load.timeout);
    below_->load(std::move(load), std::move(handlers));
  }
  void forget_warm(const std::optional<std::string>& tenant) override { store_->forget(tenant); }

 private:
  /// To the tier below; false: it has no room just now, or the block is gone.
  bool goes_down(const BlockId& id, const std::shared_ptr<const model::TierRetention>& retention) {
    const auto block = store_->find(id);
    if (!below_ || !block) return false;
    // A record is more than its block.
    if (below_->room() < 2 * (block->k.size() + block->v.size())) return false;
    below_->put(block->ns, block->layers,
                {.block = {.id = id,
                           .parent = block->parent,
                           .depth = block->depth,
                           .tokens = block->tokens,
                           .k = bytes_of(block, block->k),
                           .v = bytes_of(block, block->v)},
                 .retention = retention,
                 .wants = {.cold = true}});
    return true;
  }

  const std::shared_ptr<kvstore::WarmStore> store_;
  const std::shared_ptr<model::BlockTier> below_;
  OfferThread thread_;
};

}  // namespace

std::shared_ptr<model::BlockTier> make_warm_tier(std::shared_ptr<kvstore::WarmStore> store,
                                                 std::shared_ptr<model::BlockTier> below) {
  return std::make_shared<WarmTier>(std::move(store), std::move(below));
}

}  // namespace outrider::actors
