#include "actors/store_tier.hpp"

#include <utility>

#include "actors/offer_thread.hpp"
#include "base/system.hpp"

namespace outrider::actors {
namespace {

constexpr std::string_view k_keys = "k";
constexpr std::string_view k_values = "v";

int64_t expires_at(const model::TierRetention& retention) {
  if (retention.ttl_s == 0) return 0;
  return static_cast<int64_t>(wall_time().time_since_epoch().count()) + retention.ttl_s;
}

/// The tensor of that name; empty if there is none.
std::span<const std::byte> bytes_of(const kvstore::RecordView& record, std::string_view name,
                                    uint32_t layers) {
  for (const kvstore::TensorView& tensor : record.tensors) {
    if (tensor.name == name && tensor.layers == layers) return tensor.bytes;
  }
  return {};
}

std::vector<model::TierLoadedBlock> loaded(std::vector<kvstore::LoadedBlock> blocks,
                                           uint32_t layers) {
  std::vector<model::TierLoadedBlock> out;
  out.reserve(blocks.size());
  for (kvstore::LoadedBlock& block : blocks) {
    const auto keys = bytes_of(block.record, k_keys, layers);
    const auto values = bytes_of(block.record, k_values, layers);
    const auto owner = std::make_shared<kvstore::RecordBytes>(std::move(block.bytes));
    out.push_back({SharedBytes(owner, keys), SharedBytes(owner, values), model::TierLevel::cold});
  }
  return out;
}

class StoreTier final : public model::BlockTier {
 public:
  explicit StoreTier(std::shared_ptr<kvstore::ColdStore> store) : store_(std::move(store)) {}

  void serve(std::shared_ptr<model::TierOffers> offers) override {
    thread_.start("store tier", std::move(offers), *this);
  }
  void look() override { thread_.look(); }

  std::vector<model::TierWants> touch(
      std::span<const BlockId> chain,
      const std::shared_ptr<const model::TierRetention>& retention) override {
    return model::cold_wants(store_->touch(chain, retention->asked_for()));
  }

  void put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) override {
    model::TierBlock& block = offer.block;
    const model::TierRetention& retention = *offer.retention;
    kvstore::Block record{.ns = kv_namespace,
                          .id = block.id,
                          .parent = block.parent,
                          .depth = block.depth,
                          .tokens = std::move(block.tokens)};
    record.tensors.push_back({std::string(k_keys), layers, std::move(block.k)});
    record.tensors.push_back({std::string(k_values), layers, std::move(block.v)});
    std::vector<kvstore::Block> blocks;
    blocks.push_back(std::move(record));
    store_->put(std::move(blocks), {.tenant = retention.tenant,
                                    .pin = retention.pin,
                                    .expires_at = expires_at(retention),
                                    .pins_refused = retention.pins_refused});
  }

  model::WarmRoom warm_room(const BlockId&, size_t) override { return {}; }

  uint64_t room() const override { return store_->put_room(); }

  void retain(std::vector<BlockId> ids, const model::TierRetention& retention) override {
    if (retention.pin) {
      store_->pin(std::move(ids), expires_at(retention),
                  [counter = retention.pins_refused](kvstore::PinSummary summary) {
                    if (counter) *counter += summary.refused;
                  });
    } else {
      store_->keep_until(std::move(ids), expires_at(retention));
    }
  }

  void load(model::TierLoad load, model::TierHandlers handlers) override {
    kvstore::LoadRequest request{.ns = load.kv_namespace,
                                 .recompute = load.recompute,
                                 .timeout = load.timeout,
                                 .cancelled = std::move(load.cancelled)};
    request.chain.reserve(load.blocks.size());
    for (model::TierLoad::Wanted& block : load.blocks) {
      request.chain.push_back({block.id, std::move(block.tokens)});
    }
    store_->get(
        std::move(request),
        {.blocks =
             [give = std::move(handlers.blocks),
              layers = load.layers](std::vector<kvstore::LoadedBlock> blocks) {
               give(loaded(std::move(blocks), layers));
             },
         .done = [done = std::move(handlers.done)](const kvstore::LoadSummary&) { done(); }});
  }
  void forget_warm(const std::optional<std::string>&) override {}

 private:
  std::shared_ptr<kvstore::ColdStore> store_;
  OfferThread thread_;
};

}  // namespace

std::shared_ptr<model::BlockTier> make_store_tier(std::shared_ptr<kvstore::ColdStore> store) {
  return std::make_shared<StoreTier>(std::move(store));
}

}  // namespace outrider::actors
