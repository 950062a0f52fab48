#include "link/nccl_transfers.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.hpp"
#include "base/hash.hpp"

namespace outrider::link {
namespace {

constexpr Duration k_stall = std::chrono::milliseconds(limits::link_silence_ms);

}  // namespace

void NcclTransfers::stage(std::span<const std::byte> payload, TimePoint now) {
  OUTRIDER_CHECK(can_stage() && !payload.empty() && payload.size() <= k_nccl_slot_bytes,
                 payload.size());
  if (is_idle()) since_ = now;
  const auto slot = static_cast<uint32_t>(staged_++ % limits::link_nccl_slots);
  std::copy(payload.begin(), payload.end(), rank_->slot(slot).begin());
  staged_bytes_[slot] = payload.size();
}

void NcclTransfers::order_send(TimePoint now) {
  OUTRIDER_CHECK(has_staged());
  const auto slot = static_cast<uint32_t>(ordered_++ % limits::link_nccl_slots);
  append({.transfer = {true, slot, staged_bytes_[slot]}, .header = {}}, now);
}

void NcclTransfers::order_receive(const Header& header, TimePoint now) {
  OUTRIDER_CHECK(can_receive() && header.payload_bytes <= k_nccl_slot_bytes, header.payload_bytes);
  const auto slot = static_cast<uint32_t>(awaited_++ % limits::link_nccl_slots);
  append(
      {.transfer = {false, limits::link_nccl_slots + slot, header.payload_bytes}, .header = header},
      now);
}

void NcclTransfers::append(Order order, TimePoint now) {
  if (is_idle()) since_ = now;
  orders_.push_back(order);
}

bool NcclTransfers::step(TimePoint now, const std::function<void(const Frame&)>& deliver) {
  if (end_ == LinkEnd::none && rank_->state() == NcclState::failed) end_ = LinkEnd::device;
  bool has_moved = false;
  while (end_ == LinkEnd::none && start_next()) has_moved = true;
  while (end_ == LinkEnd::none && end_first(deliver)) {
    since_ = now;
    has_moved = true;
  }
  if (end_ == LinkEnd::none && !is_idle() && now - since_ >= k_stall) {
    end_ = LinkEnd::stalled;
  }
  return has_moved;
}

/// One at a time is brought to the stream: what follows a transfer may only be put behind it when
/// it is there.
bool NcclTransfers::start_next() {
  if (followed_ == orders_.size()) return false;
  Order& order = orders_[followed_];
  if (order.transfer.bytes > 0) {
    if (rank_->state() != NcclState::ready) return false;
    if (!std::exchange(order.has_started, true)) {
      rank_->start({&order.transfer, 1});
      return true;
    }
    rank_->follow(order.transfer);
  }
  ++followed_;
  return true;
}

bool NcclTransfers::end_first(const std::function<void(const Frame&)>& deliver) {
  if (followed_ == 0) return false;
  const Order& order = orders_.front();
  const NcclTransfer& transfer = order.transfer;
  if (transfer.bytes > 0 && !rank_->is_through(transfer.slot)) return false;
  if (transfer.is_send) {
    ++sent_;
  } else {
    Frame frame = order.header.frame;
    frame.payload = rank_->slot(transfer.slot).first(transfer.bytes);
    if (hash128(frame.payload) != order.header.payload_check) {
      end_ = LinkEnd::checksum;
      return false;
    }
    ++received_;
    deliver(frame);
  }
  orders_.pop_front();
  --followed_;
  return true;
}

}  // namespace outrider::link
