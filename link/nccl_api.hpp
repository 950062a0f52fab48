#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/limits.hpp"
#include "base/result.hpp"

/// What links use of NCCL and of the GPU's memory, as an interface: on a GPU (nccl/load_nccl.cpp),
/// or emulated between threads (emulated_nccl.test.hpp).
namespace outrider::link {

/// Names a communicator to those that join it; one of them draws it.
using NcclId = std::array<std::byte, 128>;
struct NcclSeat {
  uint32_t rank = 0;
  uint32_t ranks = 2;  ///< 1: what it sends comes to itself.
};

/// With what a process takes part; as it lies on the wire.
struct NcclIdentity {
  uint32_t version = 0;                ///< 22809: 2.28.9.
  std::array<std::byte, 16> device{};  ///< Its UUID.
};

/// Each transfer goes through a slot of pinned memory and one of the device's.
inline constexpr uint32_t k_nccl_slots = 2 * limits::link_nccl_slots;
inline constexpr size_t k_nccl_slot_bytes = limits::link_frame_bytes_max;
struct NcclTransfer {
  bool is_send = false;
  uint32_t slot = 0;
  size_t bytes = 0;  ///< As the peer's; 1 at least.
};

enum class NcclState : uint8_t {
  ready,   ///< For the next group.
  busy,    ///< It joins, or the last group is not on its stream yet.
  failed,  ///< error() says why; it can only be retired.
};

/// One rank of a communicator of two, its stream and its staging memory, all of it from the start.
/// What is started runs in the order of the calls, each group when the peer has started what it
/// takes; nothing waits, and nothing tells: it is asked. One thread at a time.
class NcclRank {
 public:
  /// Aborts what runs and gives all back. May take long: see Nccl::retire.
  virtual ~NcclRank() = default;
  virtual NcclState state() = 0;
  virtual std::string error() const = 0;
  virtual std::span<std::byte, k_nccl_slot_bytes> slot(uint32_t index) = 0;
  /// Transfers that run together. Only when ready. What is sent stays in its slot.
  virtual void start(std::span<const NcclTransfer> group) = 0;
  /// Of each transfer when it is on the stream, which is when the rank is ready again: brings what
  /// comes to its slot, and marks where is_through looks.
  virtual void follow(const NcclTransfer& transfer) = 0;
  /// The slot's transfer, which was followed, is complete.
  virtual bool is_through(uint32_t slot) = 0;
};

/// NCCL on one device. Thread-safe.
class Nccl {
 public:
  /// Waits for what was retired, for limits::link_silence_ms at most.
  virtual ~Nccl();
  virtual const NcclIdentity& identity() const = 0;
  Result<NcclId> new_id();
  /// Of a name that nobody joins by: the next new_id(). NCCL keeps a thread and a port for each
  /// name until all have joined.
  void give_back(const NcclId& id);
  /// Begins to join; what becomes of it, its state() says. Errors: overloaded, when
  /// limits::link_nccl_retiring_max ranks were retired and have not ended.
  Result<std::unique_ptr<NcclRank>> join(const NcclId& id, const NcclSeat& seat);
  /// Destroys it, on a thread of its own: an abort in a driver that hangs holds up nobody.
  void retire(std::unique_ptr<NcclRank> rank);

 private:
  virtual Result<NcclId> draw_id() = 0;
  virtual std::unique_ptr<NcclRank> begin(const NcclId& id, const NcclSeat& seat) = 0;

  struct Retiring {
    std::mutex mutex;
    std::condition_variable ended;
    uint32_t count = 0;
  };
  const std::shared_ptr<Retiring> retiring_ = std::make_shared<Retiring>();
  std::mutex spare_mutex_;
  std::optional<NcclId> spare_;
};

/// On the GPU of this number. Errors: unsupported, why not: the build, the driver, the GPU, the
/// library.
Result<std::shared_ptr<Nccl>> open_nccl(uint32_t device);

}  // namespace outrider::link
