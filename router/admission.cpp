#include "router/admission.hpp"

#include <algorithm>
#include <string>

#include "base/limits.hpp"
#include "router/placement.hpp"

namespace outrider::router {
namespace {

constexpr double k_retry_min_ms = limits::retry_after_ms;
constexpr double k_retry_max_ms = limits::retry_after_max_ms;

schema::Refusal overloaded(std::string why, double shortest_queue_ms) {
  const double retry = std::clamp(shortest_queue_ms, k_retry_min_ms, k_retry_max_ms);
  return schema::Refusal::of(fail(ErrorCode::overloaded, std::move(why)),
                             static_cast<uint32_t>(retry));
}

uint64_t percent_of(uint64_t slots, uint32_t percent) {
  return std::max<uint64_t>(1, slots * percent / 100);
}

/// What keeps a tenant from crowding out the others, if it does.
std::optional<std::string> over_share(const schema::PlaceRequest& request,
                                      const TenantShares& shares, uint64_t slots, uint64_t held) {
  const uint64_t own = uint64_t{shares.own} + request.choices;
  const uint64_t share = percent_of(slots, limits::tenant_share_percent);
  if (shares.others > 0 && own > share) {
    return "this key holds " + std::to_string(shares.own) + " of its " + std::to_string(share) +
           " request slots while others wait";
  }
  const uint64_t reserve = percent_of(slots, limits::tenant_reserve_percent);
  const uint64_t small = percent_of(reserve, limits::tenant_reserve_percent);
  if (!request.tenant.empty() && shares.own > 0 && own > small &&
      held + request.choices + reserve > slots) {
    return "the last " + std::to_string(reserve) + " of " + std::to_string(slots) +
           " request slots are kept for other keys; this one holds " + std::to_string(shares.own);
  }
  return std::nullopt;
}

}  // namespace

std::optional<schema::Refusal> admit(const schema::PlaceRequest& request,
                                     const std::vector<const WorkerView*>& candidates,
                                     const TenantShares& shares) {
  bool room = false;
  bool slot = false;
  uint64_t slots = 0;
  uint64_t held = 0;
  double queue_ms = k_retry_max_ms;
  for (const WorkerView* worker : candidates) {
    slots += worker->slots();
    held += std::min(worker->held_choices(), worker->slots());
    queue_ms = std::min(queue_ms, placement_cost(request, *worker).queue_ms);
    room = room || !worker->full();
    slot = slot || worker->has_slot();
  }
  if (request.goes_on && !slot) return overloaded("no worker has a free slot", queue_ms);
  if (was_admitted(request)) return std::nullopt;
  if (!room) return overloaded("all workers' queues are full", queue_ms);
  if (auto why = over_share(request, shares, slots, held)) {
    return overloaded(std::move(*why), queue_ms);
  }
  return std::nullopt;
}

}  // namespace outrider::router
