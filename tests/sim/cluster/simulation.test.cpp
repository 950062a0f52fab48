#include "tests/sim/cluster/simulation.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace outrider::sim::cluster {
namespace {

TEST(ClusterSimulation, DependsOnTheSeedAndNothingElse) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Outcome once = simulate(scenario_of(seed));
    const Outcome again = simulate(scenario_of(seed));
    EXPECT_EQ(once.digest, again.digest) << seed;
    EXPECT_EQ(once.messages, again.messages) << seed;
    EXPECT_EQ(once.tokens, again.tokens) << seed;
  }
  EXPECT_NE(simulate(scenario_of(1)).digest, simulate(scenario_of(2)).digest);
}

TEST(ClusterSimulation, WithoutTroubleEverythingIsServed) {
  Scenario scenario = scenario_of(1);
  scenario.faults = 0;
  scenario.is_hostile = scenario.is_tight = false;
  scenario.travel = Travel{};
  std::ostringstream trace;
  const Outcome outcome = simulate(scenario, &trace);
  EXPECT_TRUE(outcome.violations.empty()) << outcome.violations.front();
  EXPECT_GT(outcome.tokens, 0u);
  EXPECT_NE(trace.str().find("SubmitBegin"), std::string::npos);
}

/// What is served, and which of the ways a block can go are gone: else nothing is said about them.
TEST(ClusterSimulation, TroubleDoesNotBecomeTheRule) {
  uint64_t requests = 0;
  uint64_t done = 0;
  uint32_t loading = 0;
  uint32_t handing_over = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Outcome outcome = simulate(scenario_of(seed));
    EXPECT_TRUE(outcome.violations.empty()) << seed << ": " << outcome.violations.front();
    requests += outcome.requests;
    done += outcome.done;
    loading += outcome.blocks_loaded > 0 ? 1 : 0;
    handing_over += outcome.blocks_handed_over > 0 ? 1 : 0;
  }
  EXPECT_GT(done, requests / 2);
  EXPECT_GE(loading, 6u);
  EXPECT_GE(handing_over, 6u);
}

/// The first seed that notices a planted bug, by one of these signs; 0: none does.
uint64_t seed_that_finds(PlantedBug bug, const std::vector<std::string>& signs) {
  constexpr uint64_t k_seeds = 300;
  for (uint64_t seed = 1; seed <= k_seeds; ++seed) {
    for (const std::string& violation : simulate(scenario_of(seed, bug)).violations) {
      for (const std::string& sign : signs) {
        if (violation.find(sign) != violation.npos) return seed;
      }
    }
  }
  return 0;
}

TEST(ClusterSimulation, FindsADoneThatIsLostForEver) {
  EXPECT_NE(seed_that_finds(PlantedBug::lost_done, {"never ends"}), 0u);
}

TEST(ClusterSimulation, FindsTokensOfAnOldGenerationThatAreTaken) {
  EXPECT_NE(seed_that_finds(PlantedBug::stale_generation,
                            {"continuation differs from the stream", "got a wrong token"}),
            0u);
}

TEST(ClusterSimulation, FindsABlockOfAnotherTextThatIsHandedOver) {
  EXPECT_NE(seed_that_finds(PlantedBug::foreign_block,
                            {"continuation differs from the stream", "got a wrong token"}),
            0u);
}

TEST(ClusterSimulationDeathTest, FindsABlockThatIsFreedTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(seed_that_finds(PlantedBug::freed_twice, {}), "check failed: ");
}

TEST(ClusterSimulation, FindsABlockThatIsNotGivenBack) {
  EXPECT_NE(seed_that_finds(PlantedBug::leaked_block, {"blocks are in use"}), 0u);
}

}  // namespace
}  // namespace outrider::sim::cluster
