#pragma once

#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cuda/device.hpp"

namespace outrider::kernels::cuda {

/// Memory on the device that grows to the largest demand so far, which `growths` counts. What it
/// held is lost then.
class DeviceScratch {
 public:
  DeviceScratch(Device& device, uint64_t& growths)
      : device_(device), growths_(growths), memory_(nullptr, [](std::byte*) {}) {}

  template <class T>
  T* take(size_t count) {
    static_assert(alignof(T) <= 256);
    return reinterpret_cast<T*>(take_bytes(count * sizeof(T)));
  }

 private:
  std::byte* take_bytes(size_t bytes);

  Device& device_;
  uint64_t& growths_;
  Ops::Buffer memory_;
  size_t size_ = 0;
};

/// What kernels read of the host's: ids, positions, tables. A ring in the host's memory and its
/// twin on the device; copies run while the host goes on, and the ring waits for them when it is
/// full.
class Staging {
 public:
  /// The bytes that were put last, and where they lie: layers of a step ask for the same again.
  class Slot {
    friend class Staging;
    std::vector<std::byte> bytes_, next_;
    const std::byte* at_ = nullptr;
    uint64_t lap_ = 0;
  };

  /// `bytes` may be 0: the ring grows.
  Staging(Device& device, size_t bytes);
  /// So that no put of so many bytes makes it grow. What it held is lost.
  void reserve(size_t bytes);
  /// To memory of the device.
  void copy(std::byte* to, std::span<const std::byte> bytes);

  /// On the device: for kernels that are started before the next put. Not empty.
  template <class T>
  const T* put(Slot& slot, std::span<const T> values) {
    return put(slot, values, std::span<const int32_t>()).first;
  }
  template <class T, class U>
  std::pair<const T*, const U*> put(Slot& slot, std::span<const T> values,
                                    std::span<const U> others) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_copyable_v<U>);
    static_assert(sizeof(T) % alignof(U) == 0);
    const std::byte* const at = put_bytes(slot, std::as_bytes(values), std::as_bytes(others));
    return {reinterpret_cast<const T*>(at), reinterpret_cast<const U*>(at + values.size_bytes())};
  }

 private:
  const std::byte* put_bytes(Slot& slot, std::span<const std::byte> bytes,
                             std::span<const std::byte> others);
  void make_room(size_t bytes);
  void begin_lap(size_t bytes);

  Device& device_;
  Ops::Buffer host_;
  Ops::Buffer twin_;
  size_t size_ = 0;
  size_t used_ = 0;
  uint64_t lap_ = 1;
};

}  // namespace outrider::kernels::cuda
