#pragma once

#include <optional>
#include <vector>

#include "router/worker_table.hpp"
#include "schema/messages.hpp"

/// Whether a request may enter at all: a pure function, asked before placement.
namespace outrider::router {

/// Requests in flight, counted in choices.
struct TenantShares {
  uint32_t own = 0;     ///< Of the request's tenant.
  uint32_t others = 0;  ///< Of all other tenants.
};

inline bool was_admitted(const schema::PlaceRequest& request) {
  return !request.fingerprint.empty() || request.replaces != 0;
}

/// Nothing, or why not: `overloaded` (with a time to retry after) if each worker's queue is full,
/// if the tenant holds its share while others wait too, or if only the reserve is left and it holds
/// more than a small part of that already (others could come; without keys nobody can). A request
/// that was admitted once (it has a fingerprint, or goes on for a lost generation) is never
/// refused: those of a lost worker are for the others to end, above their queues; but while
/// its worker goes on with it, it is for a free slot only. Deadlines are kept by session and
/// engine: what a router knows of load and caches is too old to predict a start. `candidates` is
/// not empty.
std::optional<schema::Refusal> admit(const schema::PlaceRequest& request,
                                     const std::vector<const WorkerView*>& candidates,
                                     const TenantShares& shares);

}  // namespace outrider::router
