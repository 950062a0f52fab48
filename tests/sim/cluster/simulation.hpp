#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/sim/cluster/scenario.hpp"

namespace outrider::sim::cluster {

struct Outcome {
  std::vector<std::string> violations;  ///< The first ones.
  uint64_t digest = 0;                  ///< Of all messages that arrived, and when.
  uint64_t messages = 0;
  uint64_t requests = 0;
  uint64_t done = 0;  ///< Of them, those that got all they asked for.
  uint64_t tokens = 0;
  uint64_t blocks_loaded = 0;  ///< From stores.
  uint64_t blocks_handed_over = 0;
  Duration time{};  ///< Virtual.
};

/// Plays the scenario: a cluster of the real actors over fake models comes up, has trouble while it
/// serves, is healed, serves what comes then, and rests. Equal scenarios have equal outcomes. What
/// happens is written to `trace`, if there is one.
Outcome simulate(const Scenario& scenario, std::ostream* trace = nullptr);

}  // namespace outrider::sim::cluster
