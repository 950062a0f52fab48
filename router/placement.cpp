#include "router/placement.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "router/admission.hpp"

namespace outrider::router {
namespace {

constexpr double k_kv_knee = 0.9;
/// A full pool costs this times (1 - knee)^2 = 1 s: about a preempted prompt's prefill.
constexpr double k_kv_pressure_ms = 100'000;
/// Output that a placement charges for, as far as max_tokens allows: most answers are short.
constexpr uint64_t k_charged_output = 128;

double row_ms(const WorkerView& worker) {
  if (worker.load.rows_per_s > 0) return 1000.0 / worker.load.rows_per_s;
  return static_cast<double>(worker.announce.prefill_row_ns) * 1e-6;
}

/// A worker that has measured nothing still fills up: then a row counts as a microsecond.
double queue_row_ms(const WorkerView& worker) {
  const double measured = row_ms(worker);
  return measured > 0 ? measured : 1e-3;
}

double kv_use(const WorkerView& worker) {
  if (worker.load.blocks_total == 0) return 0;
  const double total = worker.load.blocks_total;
  const double charged = static_cast<double>(worker.charged_rows) /
                         std::max<uint32_t>(worker.announce.block_tokens, 1);
  return (total - worker.load.blocks_free + charged) / total;
}

uint64_t tie_break(uint64_t session, uint64_t worker) {
  return hash64(std::as_bytes(std::span(&session, 1)), worker);
}

struct Better {
  uint64_t session;
  bool operator()(const PlacementCost& a, const PlacementCost& b) const {
    if (a.avoided != b.avoided) return b.avoided;
    if (a.total_ms() != b.total_ms()) return a.total_ms() < b.total_ms();
    return tie_break(session, a.worker) < tie_break(session, b.worker);
  }
};

}  // namespace

PlacementCost placement_cost(const schema::PlaceRequest& request, const WorkerView& worker) {
  const double rows = request.prompt_tokens;
  PlacementCost cost;
  cost.worker = worker.announce.worker;
  cost.queue_ms =
      static_cast<double>(worker.load.queued_rows + worker.charged_rows) * queue_row_ms(worker);
  const double prefill_row_ms = worker.announce.prefill_row_ns > 0
                                    ? static_cast<double>(worker.announce.prefill_row_ns) * 1e-6
                                    : row_ms(worker);
  cost.prefill_ms = rows * prefill_row_ms;
  cost.attention_ms =
      rows * rows / 2 * static_cast<double>(worker.announce.attention_pair_ps) * 1e-9;
  const double over = std::max(0.0, kv_use(worker) - k_kv_knee);
  cost.kv_pressure_ms = k_kv_pressure_ms * over * over;
  cost.avoided = std::ranges::find(request.avoid, cost.worker) != request.avoid.end();
  return cost;
}

std::optional<PlacementCost> place(const schema::PlaceRequest& request,
                                   const std::vector<const WorkerView*>& candidates,
                                   TimePoint now) {
  std::optional<PlacementCost> best;
  const Better better{request.key.session};
  for (const WorkerView* worker : candidates) {
    if (request.goes_on ? !worker->has_slot() : worker->full() && !was_admitted(request)) continue;
    PlacementCost cost = placement_cost(request, *worker);
    cost.avoided |= now - worker->heard > std::chrono::milliseconds(limits::heartbeat_late_ms);
    if (!best || better(cost, *best)) best = cost;
  }
  return best;
}

Charge charge_for(const schema::PlaceRequest& request, uint64_t worker, TimePoint now) {
  const uint64_t output = std::min<uint64_t>(request.max_tokens, k_charged_output);
  return {request.key, worker, request.choices, request.prompt_tokens + output * request.choices,
          now};
}

std::string explain(const PlacementCost& cost) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "worker %llu: %.1f ms = queue %.1f + prefill %.1f + attention %.1f + kv %.1f%s",
                static_cast<unsigned long long>(cost.worker), cost.total_ms(), cost.queue_ms,
                cost.prefill_ms, cost.attention_ms, cost.kv_pressure_ms,
                cost.avoided ? " (avoided)" : "");
  return text.data();
}

}  // namespace outrider::router
