#include "kernels/cuda/staging.hpp"

#include <algorithm>
#include <cstring>

namespace outrider::kernels::cuda {
namespace {

size_t rounded(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

std::byte* DeviceScratch::take_bytes(size_t bytes) {
  if (bytes > size_) {
    const size_t larger = std::max(bytes, size_ + size_ / 4);
    device_.synchronize();  // nothing that runs still uses the old
    memory_.reset();
    size_ = 0;
    ++growths_;  // What points to the old is void, whether there is memory for more or not.
    memory_ = device_.allocate(larger);
    size_ = larger;
  }
  return memory_.get();
}

Staging::Staging(Device& device, size_t bytes)
    : device_(device),
      host_(device.allocate_host(bytes)),
      twin_(device.allocate(bytes)),
      size_(bytes) {}

void Staging::reserve(size_t bytes) {
  if (rounded(bytes) > size_ / 2) begin_lap(rounded(bytes));
}

void Staging::make_room(size_t bytes) {
  if (used_ + bytes > size_) begin_lap(bytes);
}

void Staging::begin_lap(size_t bytes) {
  device_.synchronize();
  if (bytes > size_ / 2) {
    const size_t larger = 4 * bytes;
    host_ = device_.allocate_host(larger);
    twin_ = device_.allocate(larger);
    size_ = larger;
  }
  used_ = 0;
  ++lap_;
}

const std::byte* Staging::put_bytes(Slot& slot, std::span<const std::byte> bytes,
                                    std::span<const std::byte> others) {
  slot.next_.assign(bytes.begin(), bytes.end());
  slot.next_.insert(slot.next_.end(), others.begin(), others.end());
  if (slot.lap_ == lap_ && slot.next_ == slot.bytes_) return slot.at_;
  make_room(rounded(slot.next_.size()));
  slot.at_ = twin_.get() + used_;
  slot.lap_ = lap_;
  copy(twin_.get() + used_, slot.next_);
  slot.bytes_.swap(slot.next_);
  return slot.at_;
}

void Staging::copy(std::byte* to, std::span<const std::byte> bytes) {
  make_room(rounded(bytes.size()));
  std::memcpy(host_.get() + used_, bytes.data(), bytes.size());
  device_.start_copy_in(to, host_.get() + used_, bytes.size());
  used_ += rounded(bytes.size());
}

}  // namespace outrider::kernels::cuda
