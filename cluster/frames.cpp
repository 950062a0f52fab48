#include "cluster/frames.hpp"

#include <algorithm>

#include "base/limits.hpp"

namespace outrider::cluster {

bool FrameCheck::feed(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const size_t taken = std::min(payload_left_, bytes.size());
      payload_left_ -= taken;
      bytes = bytes.subspan(taken);
      continue;
    }
    const size_t taken = std::min(k_head_bytes - head_filled_, bytes.size());
    std::copy_n(bytes.begin(), taken, head_.begin() + static_cast<ptrdiff_t>(head_filled_));
    head_filled_ += taken;
    bytes = bytes.subspan(taken);
    if (head_filled_ < k_head_bytes) return true;
    head_filled_ = 0;
    const uint32_t payload = uint32_t{head_[4]} << 24 | uint32_t{head_[5]} << 16 |
                             uint32_t{head_[6]} << 8 | uint32_t{head_[7]};
    if (head_[0] >= k_operations || payload > limits::cluster_frame_bytes_max) return false;
    payload_left_ = payload;
  }
  return true;
}

}  // namespace outrider::cluster
