#include "tests/sim/cluster/scenario.hpp"

#include <sstream>

namespace outrider::sim::cluster {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Scenario scenario_of(uint64_t seed, PlantedBug bug) {
  Random random(seed);
  Scenario out;
  out.seed = seed;
  out.bug = bug;
  out.is_hostile = random.chance(0.5f);
  out.gateways = random.chance(0.5f) ? 1 : 2 + random.below(2);
  out.targets = 1 + random.below(3);
  out.drafts = random.chance(0.5f) ? 0 : 1 + random.below(2);
  out.has_stranger = !out.is_hostile && random.chance(0.25f);
  out.is_mixed = out.has_stranger && random.chance(0.5f);
  out.is_tight = random.chance(0.2f);
  if (out.is_tight) out.sessions_max = 6;
  out.has_long_prompts = !out.is_tight && random.chance(0.1f);
  out.has_rock = out.targets > 1 && random.chance(0.5f);
  out.requests = 4 + random.below(9);
  out.faults = random.below(6);
  out.trouble = milliseconds(2'000 + random.below(8'000));
  out.travel.most = microseconds(200 + random.below(random.chance(0.2f) ? 100'000 : 3'000));
  if (out.is_hostile) {
    out.travel.lost = 0.04f * random.uniform();
    out.travel.repeated = 0.08f * random.uniform();
    out.travel.late = 0.1f * random.uniform();
    out.travel.late_most = milliseconds(1 + random.below(1'500));
  }
  out.has_stores = random.chance(0.5f);
  out.has_lines = out.targets > 1 && random.chance(0.85f);
  if (out.has_stores || out.has_lines) out.requests += random.below(9);
  if (out.has_lines) out.faults += 1 + random.below(3);
  out.line_message = microseconds(random.below(random.chance(0.4f) ? 40'000 : 500));
  return out;
}

std::string describe(const Scenario& scenario) {
  std::ostringstream out;
  out << (scenario.is_hostile ? "hostile" : "faithful") << " network, gateways "
      << scenario.gateways << ", targets " << scenario.targets << ", drafts " << scenario.drafts
      << (scenario.is_mixed       ? ", two models"
          : scenario.has_stranger ? ", a stranger"
                                  : "")
      << (scenario.is_tight ? ", tight" : "") << (scenario.has_long_prompts ? ", long prompts" : "")
      << (scenario.has_stores ? ", stores" : "") << (scenario.has_lines ? ", lines" : "")
      << (scenario.has_rock ? ", a rock" : "") << ", requests " << scenario.requests << ", faults "
      << scenario.faults << " in " << to_ms(scenario.trouble) << " ms";
  return out.str();
}

}  // namespace outrider::sim::cluster
