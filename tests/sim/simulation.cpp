#include "tests/sim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/sim/draft_side.hpp"
#include "tests/sim/target_side.hpp"

namespace outrider::sim {
namespace {

/// A full target needs fewer steps than a lone request, but enough to learn in: each request's
/// share of the tokens is one of so many at least.
constexpr uint32_t k_shares_max = 80;

Duration one_way(const Scenario& scenario) {
  return Duration(static_cast<Duration::rep>(scenario.rtt_ms * 1e6 / 2));
}

/// Target and draft, and what is on its way between them.
class World {
 public:
  explicit World(const Scenario& scenario)
      : scenario_(scenario),
        texts_(scenario.seed, scenario.acceptance,
               scenario.claimed > 0 ? scenario.claimed : scenario.acceptance),
        target_(scenario_, texts_, queue_,
                [this](std::vector<actors::DraftInput> inputs) { to_draft(std::move(inputs)); }),
        draft_(scenario_, texts_, queue_,
               [this](actors::DraftReplies replies) { to_target(std::move(replies)); }) {}

  Outcome run() {
    const uint64_t wanted = scenario_.tokens;
    const uint64_t tokens = std::max(wanted, wanted / k_shares_max * scenario_.batch);
    target_.start();
    while (target_.tokens() < tokens && queue_.run_next()) {
    }
    Outcome out = target_.outcome();
    out.draft_busy = to_ms(draft_.busy()) / to_ms(queue_.now());
    return out;
  }

 private:
  void to_draft(std::vector<actors::DraftInput> inputs) {
    queue_.after(one_way(scenario_), [this, sent = std::move(inputs)] { draft_.take(sent); });
  }
  void to_target(actors::DraftReplies replies) {
    queue_.after(one_way(scenario_), [this, sent = std::move(replies)] { target_.take(sent); });
  }

  const Scenario& scenario_;
  Texts texts_;
  EventQueue queue_;
  TargetSide target_;
  DraftSide draft_;
};

}  // namespace

Outcome simulate(const Scenario& scenario) {
  return World(scenario).run();
}

double colocated_speedup(const Scenario& scenario) {
  const double batch = scenario.batch;
  const double plain_ms = scenario.target.ms(batch);
  const double a = scenario.acceptance;
  double best = 1;
  for (int k = 1; k <= 32; ++k) {
    const double tokens = (1 - std::pow(a, k + 1)) / (1 - a);
    const double ms = scenario.target.ms(batch * (k + 1)) + k * scenario.draft.ms(batch);
    best = std::max(best, tokens * plain_ms / ms);
  }
  return best;
}

}  // namespace outrider::sim
