#include "link/nccl_api.hpp"

#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace outrider::link {

Nccl::~Nccl() {
  std::unique_lock lock(retiring_->mutex);
  retiring_->ended.wait_for(lock, std::chrono::milliseconds(limits::link_silence_ms),
                            [this] { return retiring_->count == 0; });
}

Result<NcclId> Nccl::new_id() {
  {
    const std::lock_guard lock(spare_mutex_);
    if (const auto spare = std::exchange(spare_, std::nullopt)) return *spare;
  }
  return draw_id();
}

void Nccl::give_back(const NcclId& id) {
  const std::lock_guard lock(spare_mutex_);
  spare_ = id;
}

Result<std::unique_ptr<NcclRank>> Nccl::join(const NcclId& id, const NcclSeat& seat) {
  {
    const std::lock_guard lock(retiring_->mutex);
    if (retiring_->count >= limits::link_nccl_retiring_max) {
      return fail(ErrorCode::overloaded, "aborted communicators do not end");
    }
  }
  return begin(id, seat);
}

void Nccl::retire(std::unique_ptr<NcclRank> rank) {
  const auto end = [retiring = retiring_](std::unique_ptr<NcclRank> it) {
    it.reset();
    const std::lock_guard lock(retiring->mutex);
    --retiring->count;
    retiring->ended.notify_all();
  };
  {
    const std::lock_guard lock(retiring_->mutex);
    ++retiring_->count;
  }
  auto* raw = rank.get();
  try {
    std::thread([end, raw] { end(std::unique_ptr<NcclRank>(raw)); }).detach();
    (void)rank.release();
  } catch (const std::system_error&) {
    end(std::move(rank));  // no thread: it waits here
  }
}

}  // namespace outrider::link
