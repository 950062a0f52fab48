#include "actors/store_tier.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include "base/check.hpp"
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
    out.push_back({std::make_shared<kvstore::RecordBytes>(std::move(block.bytes)), keys, values});
  }
  return out;
}

class StoreTier final : public model::BlockTier {
 public:
  explicit StoreTier(std::shared_ptr<kvstore::ColdStore> store) : store_(std::move(store)) {}
  ~StoreTier() override {
    stop_ = true;
    look();
    if (thread_.joinable()) thread_.join();
  }

  void serve(std::shared_ptr<model::TierOffers> offers) override {
    OUTRIDER_CHECK(!thread_.joinable(), "a tier serves one engine");
    offers_ = std::move(offers);
    thread_ = std::thread([this] { run(); });
  }
  void look() override {
    looks_.fetch_add(1);
    looks_.notify_one();
  }

  std::vector<bool> touch(std::span<const BlockId> chain, bool hint) override {
    return store_->touch(chain, hint);
  }

  void put(const Digest256& kv_namespace, uint32_t layers, model::TierBlock block,
           const model::TierRetention& retention) override {
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

 private:
  /// The store's lock is waited for here, not in a step.
  void run() {
    name_this_thread("store tier");
    while (!stop_) {
      const uint32_t seen = looks_;
      settle(*offers_, *this);
      if (!stop_) looks_.wait(seen);
    }
  }

  std::shared_ptr<kvstore::ColdStore> store_;
  std::shared_ptr<model::TierOffers> offers_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> looks_ = 0;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<model::BlockTier> make_store_tier(std::shared_ptr<kvstore::ColdStore> store) {
  return std::make_shared<StoreTier>(std::move(store));
}

}  // namespace outrider::actors
