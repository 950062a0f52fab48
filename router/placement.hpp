#pragma once

#include <optional>
#include <string>
#include <vector>

#include "router/worker_table.hpp"
#include "schema/messages.hpp"

/// Who computes a request: a pure function of the request and what the workers said.
namespace outrider::router {

/// Predicted cost of a request on one worker, in ms. Each term is measured by that worker; one
/// that it has not measured counts 0 for all requests alike.
struct PlacementCost {
  uint64_t worker = 0;
  double queue_ms = 0;        ///< Rows ahead of it (reported and charged), at the worker's speed.
  double prefill_ms = 0;      ///< Its own prompt, row by row.
  double attention_ms = 0;    ///< Its own prompt's rows looking at each other.
  double kv_pressure_ms = 0;  ///< Above 90 % of the blocks, preemption comes near.
  bool avoided = false;       ///< The session just failed there, or it is late with two heartbeats.

  double total_ms() const { return queue_ms + prefill_ms + attention_ms + kv_pressure_ms; }
};

PlacementCost placement_cost(const schema::PlaceRequest& request, const WorkerView& worker);

/// The candidate with the least cost that is not full, one that is avoided only if there is no
/// other; equal costs are decided by a hash of session and worker, so that routers without common
/// memory still spread. None if all are full.
std::optional<PlacementCost> place(const schema::PlaceRequest& request,
                                   const std::vector<const WorkerView*>& candidates, TimePoint now);

/// What a placement promises before the worker reports it.
Charge charge_for(const schema::PlaceRequest& request, uint64_t worker, TimePoint now);

/// "worker 7: 12.5 ms = queue 10.0 + prefill 2.0 + attention 0.5 + kv 0.0"
std::string explain(const PlacementCost& cost);

}  // namespace outrider::router
