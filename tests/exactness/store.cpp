#include "tests/exactness/store.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
#include <utility>

#include "actors/store_tier.hpp"
#include "actors/warm_tier.hpp"
#include "base/check.hpp"
#include "base/system.hpp"

namespace outrider::exactness {

HarnessStore::HarnessStore()
    : directory_(std::filesystem::temp_directory_path() /
                 ("outrider-exactness-" + std::to_string(random_bits()))) {
  open();
}

HarnessStore::~HarnessStore() {
  tier_.reset();
  store_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void HarnessStore::open() {
  tier_.reset();
  store_.reset();
  kvstore::ColdStoreOptions options;
  options.directory = directory_;
  options.cap_bytes = uint64_t{1} << 30;
  options.queue_bytes = uint64_t{256} << 20;
  options.write_bytes_per_second = 0;
  const kvstore::Surroundings surroundings = {.clock = clock_,
                                              .wall_time = [] { return UnixTime(); }};
  store_ = std::make_shared<kvstore::ColdStore>(options, surroundings);
  // For fp32 blocks of 64 tokens of a small model; of tiny ones some, so that they make room.
  constexpr size_t k_slots = 24;
  constexpr size_t k_slot_bytes = size_t{4} << 20;
  const std::shared_ptr<std::byte[]> memory(new std::byte[k_slots * k_slot_bytes]);
  tier_ = actors::make_warm_tier(
      std::make_shared<kvstore::WarmStore>(std::shared_ptr<std::byte>(memory, memory.get()),
                                           k_slot_bytes, k_slots),
      actors::make_store_tier(store_));
}

void HarnessStore::begin_batch(bool restart) {
  if (restart) open();
  reads_.clear();
  fresh_.clear();
  store_->drain();
}

void HarnessStore::deliver(Random& random) {
  if (reads_.empty()) return;
  Read& read = reads_.front();
  std::vector<model::TierLoadedBlock> blocks;
  for (uint32_t count = random.below(8); count > 0 && !read.blocks.empty(); --count) {
    blocks.push_back(std::move(read.blocks.front()));
    read.blocks.pop_front();
  }
  if (!blocks.empty()) read.handlers.blocks(std::move(blocks));
  if (!read.blocks.empty() && !random.chance(0.05f)) return;
  read.handlers.done();
  reads_.pop_front();
}

void HarnessStore::drop(Random& random) {
  std::vector<BlockId> victims;
  for (uint32_t i = 0; i < 4 && !known_.empty(); ++i) {
    const uint32_t at = random.below(static_cast<uint32_t>(known_.size()));
    victims.push_back(known_[at]);
    known_[at] = known_.back();
    known_.pop_back();
  }
  store_->drop(std::move(victims));
  store_->drain();
}

/// What was used once is worth storing here, so that there is more to find.
std::vector<model::TierWants> HarnessStore::touch(
    std::span<const BlockId> chain, const std::shared_ptr<const model::TierRetention>&) {
  static const auto asked =
      std::make_shared<const model::TierRetention>(model::TierRetention{.tenant = "", .ttl_s = 1});
  return tier_->touch(chain, asked);
}

void HarnessStore::put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) {
  fresh_.insert(offer.block.id);
  known_.push_back(offer.block.id);
  tier_->put(kv_namespace, layers, std::move(offer));
}

void HarnessStore::retain(std::vector<BlockId> ids, const model::TierRetention& retention) {
  tier_->retain(std::move(ids), retention);
}

void HarnessStore::load(model::TierLoad load, model::TierHandlers handlers) {
  const auto fresh = std::find_if(load.blocks.begin(), load.blocks.end(),
                                  [&](const auto& block) { return fresh_.contains(block.id); });
  load.blocks.erase(fresh, load.blocks.end());
  Read read{std::move(handlers), {}};
  std::promise<void> ended;
  tier_->load(std::move(load), {.blocks =
                                    [&read](std::vector<model::TierLoadedBlock> blocks) {
                                      std::move(blocks.begin(), blocks.end(),
                                                std::back_inserter(read.blocks));
                                    },
                                .done = [&ended] { ended.set_value(); }});
  ended.get_future().wait();
  if (read.blocks.empty()) return read.handlers.done();
  reads_.push_back(std::move(read));
}

}  // namespace outrider::exactness
