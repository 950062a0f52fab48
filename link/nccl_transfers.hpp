#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>

#include "base/clock.hpp"
#include "link/frame.hpp"
#include "link/link_end.hpp"
#include "link/nccl_api.hpp"

namespace outrider::link {

/// The payloads of one link, in the one order that both of its ends keep: they go over one stream,
/// and two ends that start them in different orders wait for each other for ever. Each holds a slot
/// until it is through, so their memory is bounded. Waits for nothing; one thread at a time.
class NcclTransfers {
 public:
  explicit NcclTransfers(std::unique_ptr<NcclRank> rank) : rank_(std::move(rank)) {}

  /// A payload to send is copied to a slot, if there is one, and goes when its turn is known.
  bool can_stage() const { return staged_ - sent_ < limits::link_nccl_slots; }
  void stage(std::span<const std::byte> payload, TimePoint now);
  bool has_staged() const { return staged_ > ordered_; }
  /// The next in the order is the oldest one that is staged;
  void order_send(TimePoint now);
  /// or this frame, which comes from the peer, if there is a slot.
  bool can_receive() const { return awaited_ - received_ < limits::link_nccl_slots; }
  void order_receive(const Header& header, TimePoint now);

  /// Moves all on that can be, and hands out frames that came, payloads in their slots. False:
  /// nothing moved.
  bool step(TimePoint now, const std::function<void(const Frame&)>& deliver);
  /// None is under way, or waits for its turn.
  bool is_idle() const { return orders_.empty() && !has_staged(); }
  /// `none`, or what went wrong: device, checksum, or stalled: none was through for
  /// limits::link_silence_ms.
  LinkEnd end() const { return end_; }
  /// For who retires it; there is no step after it.
  std::unique_ptr<NcclRank> release() { return std::move(rank_); }

 private:
  struct Order {
    NcclTransfer transfer;  ///< An empty message's has no bytes, and no turn on the stream.
    Header header;          ///< Of what is received.
    bool has_started = false;
  };

  void append(Order order, TimePoint now);
  bool start_next();
  bool end_first(const std::function<void(const Frame&)>& deliver);

  std::unique_ptr<NcclRank> rank_;
  std::deque<Order> orders_;
  size_t followed_ = 0;  ///< So many of the first; the one behind them may have been started.
  TimePoint since_{};    ///< The last one was through, or the first one came to an idle link.
  LinkEnd end_ = LinkEnd::none;
  // How many payloads came so far; each direction takes its slots in turn.
  uint64_t staged_ = 0, ordered_ = 0, sent_ = 0;
  uint64_t awaited_ = 0, received_ = 0;
  std::array<size_t, limits::link_nccl_slots> staged_bytes_{};
};

}  // namespace outrider::link
