#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "link/nccl_api.hpp"

/// NCCL between threads of one process, and its bad days.
namespace outrider::link::testing_support {

/// What communicators of one process share, and what it is told to do wrong.
struct EmulatedWorld {
  /// Of one rank, in the order of its stream.
  struct Group {
    std::vector<NcclTransfer> transfers;
    std::vector<bool> is_through;
  };
  struct Seat {
    bool is_taken = false;
    bool is_gone = false;
    std::vector<std::byte> host, device;
    std::deque<Group> stream;
    std::array<bool, k_nccl_slots> is_followed{}, is_through{};
  };
  struct Communicator {
    uint32_t ranks = 2;
    std::array<Seat, 2> seats;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::map<NcclId, Communicator> communicators;
  uint8_t ids = 0;
  uint64_t transfers = 0;  ///< Payloads that went over.
  uint32_t ranks = 0;      ///< Not destroyed.

  bool joins = true;        ///< Else joining never ends.
  bool moves = true;        ///< Else what is sent never arrives.
  bool aborts = true;       ///< Else a rank's destructor waits.
  bool fails = false;       ///< Ranks report an error.
  uint32_t damages = 0;     ///< So many of the next payloads lose a bit.
  uint32_t busy_looks = 2;  ///< So often a rank is busy after each call.

  /// Sets one of them.
  template <class T>
  void set(T EmulatedWorld::*what, T to) {
    const std::lock_guard lock(mutex);
    this->*what = to;
    changed.notify_all();
  }
  void wait_for_ranks(uint32_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ranks == count; });
  }
  /// For so many ranks that have started what does not move.
  void wait_for_probes(uint32_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] {
      uint32_t started = 0;
      for (auto& [id, it] : communicators) {
        started += static_cast<uint32_t>(
            std::ranges::count_if(it.seats, [](const Seat& seat) { return !seat.stream.empty(); }));
      }
      return started == count;
    });
  }

  /// Lets go over what both sides have first: a send and the receive of its size. Another order or
  /// another size waits for ever.
  void match(Communicator& it) {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (uint32_t from = 0; from < it.ranks; ++from) {
        has_moved = match(it.seats[from], it.seats[it.ranks == 1 ? 0 : 1 - from]) || has_moved;
      }
      for (Seat& seat : it.seats) has_moved = end_groups(seat) || has_moved;
    }
  }

 private:
  static size_t first_waiting(const Group& group, bool is_send) {
    size_t i = 0;
    while (i < group.transfers.size() &&
           (group.is_through[i] || group.transfers[i].is_send != is_send)) {
      ++i;
    }
    return i;
  }
  bool match(Seat& from, Seat& to) {
    if (!moves || from.is_gone || to.is_gone) return false;
    if (from.stream.empty() || to.stream.empty()) return false;
    Group& a = from.stream.front();
    Group& b = to.stream.front();
    const size_t send = first_waiting(a, true), receive = first_waiting(b, false);
    if (send == a.transfers.size() || receive == b.transfers.size()) return false;
    const NcclTransfer& s = a.transfers[send];
    const NcclTransfer& r = b.transfers[receive];
    if (s.bytes != r.bytes) return false;
    // What lies in the slot now: an end that fills it again too early sends that.
    const auto source = from.host.begin() + static_cast<std::ptrdiff_t>(s.slot * k_nccl_slot_bytes);
    const auto target = to.device.begin() + static_cast<std::ptrdiff_t>(r.slot * k_nccl_slot_bytes);
    std::copy_n(source, s.bytes, target);
    if (damages > 0) {
      --damages;
      *target ^= std::byte{1};
    }
    a.is_through[send] = b.is_through[receive] = true;
    ++transfers;
    return true;
  }
  static bool end_groups(Seat& seat) {
    if (seat.stream.empty()) return false;
    const Group& group = seat.stream.front();
    if (!std::all_of(group.is_through.begin(), group.is_through.end(),
                     [](bool it) { return it; })) {
      return false;
    }
    for (const NcclTransfer& t : group.transfers) seat.is_through[t.slot] = true;
    seat.stream.pop_front();
    return true;
  }
};

class EmulatedRank final : public NcclRank {
 public:
  EmulatedRank(std::shared_ptr<EmulatedWorld> world, const NcclId& id, const NcclSeat& seat)
      : world_(std::move(world)), own_(seat.rank) {
    const std::lock_guard lock(world_->mutex);
    it_ = &world_->communicators[id];
    it_->ranks = seat.ranks;
    busy_ = world_->busy_looks;
    auto& mine = me();
    OUTRIDER_CHECK(!mine.is_taken);
    mine.is_taken = true;
    mine.host.resize(k_nccl_slots * k_nccl_slot_bytes);
    mine.device.resize(mine.host.size());
    ++world_->ranks;
    world_->changed.notify_all();
  }
  ~EmulatedRank() override {
    std::unique_lock lock(world_->mutex);
    world_->changed.wait(lock, [this] { return world_->aborts; });
    me().is_gone = true;
    me().stream.clear();
    --world_->ranks;
    world_->changed.notify_all();
  }

  NcclState state() override {
    const std::lock_guard lock(world_->mutex);
    if (world_->fails) return NcclState::failed;
    if (!has_joined_) {
      for (uint32_t i = 0; i < it_->ranks; ++i) {
        if (!world_->joins || !it_->seats[i].is_taken) return NcclState::busy;
      }
      has_joined_ = true;
    }
    if (busy_ > 0) {
      --busy_;
      return NcclState::busy;
    }
    return NcclState::ready;
  }
  std::string error() const override { return "told to fail"; }

  std::span<std::byte, k_nccl_slot_bytes> slot(uint32_t index) override {
    const std::lock_guard lock(world_->mutex);
    return std::span<std::byte, k_nccl_slot_bytes>(me().host.data() + index * k_nccl_slot_bytes,
                                                   k_nccl_slot_bytes);
  }

  void start(std::span<const NcclTransfer> group) override {
    const std::lock_guard lock(world_->mutex);
    OUTRIDER_CHECK(has_joined_ && busy_ == 0, busy_);
    for (const NcclTransfer& t : group) {
      OUTRIDER_CHECK(t.bytes > 0 && t.bytes <= k_nccl_slot_bytes && t.slot < k_nccl_slots, t.bytes);
      me().is_through[t.slot] = me().is_followed[t.slot] = false;
    }
    me().stream.push_back({{group.begin(), group.end()}, std::vector<bool>(group.size())});
    busy_ = world_->busy_looks;
    world_->match(*it_);
    world_->changed.notify_all();
  }
  void follow(const NcclTransfer& t) override {
    const std::lock_guard lock(world_->mutex);
    OUTRIDER_CHECK(busy_ == 0, busy_);  // else it would overtake the transfer
    me().is_followed[t.slot] = true;
    if (!t.is_send) received_[t.slot] = t.bytes;
  }
  bool is_through(uint32_t slot) override {
    const std::lock_guard lock(world_->mutex);
    OUTRIDER_CHECK(me().is_followed[slot], slot);
    if (!me().is_through[slot]) return false;
    const auto at = static_cast<std::ptrdiff_t>(slot * k_nccl_slot_bytes);
    std::copy_n(me().device.begin() + at, std::exchange(received_[slot], 0),
                me().host.begin() + at);
    return true;
  }

 private:
  EmulatedWorld::Seat& me() { return it_->seats[own_]; }

  const std::shared_ptr<EmulatedWorld> world_;
  const uint32_t own_;
  EmulatedWorld::Communicator* it_ = nullptr;
  bool has_joined_ = false;
  uint32_t busy_ = 0;
  std::array<size_t, k_nccl_slots> received_{};
};

class EmulatedNccl final : public Nccl {
 public:
  EmulatedNccl(std::shared_ptr<EmulatedWorld> world, uint8_t device, uint32_t version = 22809)
      : world_(std::move(world)), identity_{version, {std::byte{device}}} {}

  const NcclIdentity& identity() const override { return identity_; }

 private:
  Result<NcclId> draw_id() override {
    const std::lock_guard lock(world_->mutex);
    return NcclId{std::byte{++world_->ids}};
  }
  std::unique_ptr<NcclRank> begin(const NcclId& id, const NcclSeat& seat) override {
    return std::make_unique<EmulatedRank>(world_, id, seat);
  }

  const std::shared_ptr<EmulatedWorld> world_;
  const NcclIdentity identity_;
};

}  // namespace outrider::link::testing_support
