#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/philox.hpp"
#include "kvstore/cold_store.hpp"
#include "model/block_tier.hpp"

namespace outrider::exactness {

/// The real store in a directory of its own, and a little memory of the host before it, below the
/// engines of one batch after the other. So
/// that a seed repeats a run, time is taken out of it: a batch finds what earlier batches stored,
/// nothing expires, and blocks come when `deliver` says so.
class HarnessStore final : public model::BlockTier {
 public:
  HarnessStore();
  ~HarnessStore() override;

  /// Before each batch; `restart`: the store is closed and opened again first.
  void begin_batch(bool restart);
  /// Gives some blocks of the oldest read, or ends it early.
  void deliver(Random& random);
  /// Forgets some of what is stored.
  void drop(Random& random);

  void serve(std::shared_ptr<model::TierOffers> offers) override { offers_ = std::move(offers); }
  void look() override { model::settle(*offers_, *this); }
  std::vector<model::TierWants> touch(
      std::span<const BlockId> chain,
      const std::shared_ptr<const model::TierRetention>& retention) override;
  void put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) override;
  model::WarmRoom warm_room(const BlockId& id, size_t bytes) override {
    return tier_->warm_room(id, bytes);
  }
  uint64_t room() const override { return UINT64_MAX; }
  void retain(std::vector<BlockId> ids, const model::TierRetention& retention) override;
  void load(model::TierLoad load, model::TierHandlers handlers) override;
  void forget_warm(const std::optional<std::string>&) override {}

 private:
  struct Read {
    model::TierHandlers handlers;
    std::deque<model::TierLoadedBlock> blocks;
  };
  void open();

  SteadyClock clock_;
  std::string directory_;
  std::shared_ptr<kvstore::ColdStore> store_;
  std::shared_ptr<model::BlockTier> tier_;
  std::shared_ptr<model::TierOffers> offers_;
  std::set<BlockId> fresh_;  ///< Put by this batch.
  std::vector<BlockId> known_;
  std::deque<Read> reads_;
};

}  // namespace outrider::exactness
