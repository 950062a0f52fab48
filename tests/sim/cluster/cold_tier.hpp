#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/philox.hpp"
#include "kvstore/admission.hpp"
#include "kvstore/load_gate.hpp"
#include "model/block_tier.hpp"
#include "tests/sim/cluster/timeline.hpp"

namespace outrider::sim::cluster {

/// What is left of a store when its process dies: records by block. Of bounded size.
struct Disk {
  std::map<BlockId, std::vector<std::byte>> records;
  std::deque<BlockId> order;  ///< As they were written: the first ones make room.
  Duration least{std::chrono::microseconds(100)};
  Duration most{std::chrono::milliseconds(3)};
  bool fails = false;  ///< Neither reads nor writes.

  void write(const BlockId& id, std::vector<std::byte> record);
};

/// A store of one life of its process, as the tier below an engine's pool: kvstore's admission,
/// records and gate over a simulated disk, which reads and writes one record at a time. A write
/// that its process does not live to see leaves nothing, or half a record.
class ColdTier final : public model::BlockTier, public std::enable_shared_from_this<ColdTier> {
 public:
  ColdTier(std::shared_ptr<Disk> disk, Timeline& time, Random& random)
      : disk_(std::move(disk)), time_(time), random_(random) {}
  ~ColdTier() override;

  void serve(std::shared_ptr<model::TierOffers> offers) override { offers_ = std::move(offers); }
  void look() override;
  std::vector<model::TierWants> touch(
      std::span<const BlockId> chain,
      const std::shared_ptr<const model::TierRetention>& retention) override;
  void put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) override;
  model::WarmRoom warm_room(const BlockId&, size_t) override { return {}; }
  uint64_t room() const override;
  void retain(std::vector<BlockId>, const model::TierRetention&) override {}
  void load(model::TierLoad load, model::TierHandlers handlers) override;
  void forget_warm(const std::optional<std::string>&) override {}

  /// More was put than there was room for, which a store loses.
  bool was_overfull() const { return was_overfull_; }
  uint64_t loaded() const { return loaded_; }

 private:
  struct Write {
    BlockId id{};
    std::vector<std::byte> record;
  };
  struct Read;

  Duration disk_time();
  void write_next();
  void read_next(const std::shared_ptr<Read>& read);
  void end(const std::shared_ptr<Read>& read);

  std::shared_ptr<Disk> disk_;
  Timeline& time_;
  Random& random_;
  std::shared_ptr<model::TierOffers> offers_;
  kvstore::Admission admission_{1u << 10};
  kvstore::ReadSpeed speed_;
  std::deque<Write> writes_;
  uint64_t queued_bytes_ = 0;   ///< To be written,
  uint64_t reading_bytes_ = 0;  ///< to be read.
  uint64_t loaded_ = 0;         ///< Blocks.
  bool is_looking_ = false;
  bool was_overfull_ = false;
};

}  // namespace outrider::sim::cluster
