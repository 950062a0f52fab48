#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

#include "tests/sim/cluster/simulation.hpp"

/// Plays many seeds of the simulated cluster; says which ones break an invariant, and how to see
/// them again.
namespace outrider::sim::cluster {
namespace {

std::atomic<uint64_t> playing{0};

/// A broken check of the real code aborts: then this is all that can still be said.
void say_seed(int) {
  std::fprintf(stderr, "aborted in seed %llu; again: cluster_sim --seed %llu --trace\n",
               static_cast<unsigned long long>(playing.load()),
               static_cast<unsigned long long>(playing.load()));
}

struct Settings {
  std::string seeds = "1:300";
  uint64_t seed = 0;
  bool trace = false;
  uint32_t failures_max = 10;
  PlantedBug bug = PlantedBug::none;
};

struct Totals {
  uint64_t seeds = 0;
  uint64_t violating = 0;
  uint64_t requests = 0;
  uint64_t done = 0;
  uint64_t messages = 0;
  uint64_t tokens = 0;
  uint64_t loading = 0;  ///< Seeds in which blocks are loaded,
  uint64_t blocks_loaded = 0;
  uint64_t handing_over = 0;  ///< and handed over.
  uint64_t blocks_handed_over = 0;
  double virtual_s = 0;
};

void play(uint64_t seed, const Settings& settings, Totals& totals) {
  playing = seed;
  const Scenario scenario = scenario_of(seed, settings.bug);
  const Outcome outcome = simulate(scenario, settings.trace ? &std::cout : nullptr);
  ++totals.seeds;
  totals.requests += outcome.requests;
  totals.done += outcome.done;
  totals.messages += outcome.messages;
  totals.tokens += outcome.tokens;
  totals.loading += outcome.blocks_loaded > 0 ? 1 : 0;
  totals.handing_over += outcome.blocks_handed_over > 0 ? 1 : 0;
  totals.blocks_loaded += outcome.blocks_loaded;
  totals.blocks_handed_over += outcome.blocks_handed_over;
  totals.virtual_s += to_seconds(outcome.time);
  if (outcome.violations.empty()) return;
  ++totals.violating;
  std::cout << "seed " << seed << " (" << describe(scenario) << ")\n";
  for (const std::string& violation : outcome.violations) std::cout << "  " << violation << "\n";
  std::cout << "  again: cluster_sim --seed " << seed << " --trace" << std::endl;
}

struct Range {
  uint64_t first = 1;
  uint64_t count = 0;  ///< 0: not understood.
};

Range parse_range(const std::string& text) {
  Range range;
  char colon = 0;
  std::istringstream in(text);
  in >> range.first >> colon >> range.count;
  return in && colon == ':' ? range : Range{};
}

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app("A cluster of the real actors over fake models, in virtual time, under faults");
  app.add_option("--seeds", settings.seeds, "FIRST:COUNT")->capture_default_str();
  app.add_option("--seed", settings.seed, "This one only");
  app.add_flag("--trace", settings.trace, "Write what happens");
  app.add_option("--failures", settings.failures_max, "Stop after so many violating seeds")
      ->capture_default_str();
  const std::map<std::string, PlantedBug> bugs = {
      {"none", PlantedBug::none},
      {"lost-done", PlantedBug::lost_done},
      {"stale-generation", PlantedBug::stale_generation},
      {"foreign-block", PlantedBug::foreign_block},
      {"freed-twice", PlantedBug::freed_twice},
      {"leaked-block", PlantedBug::leaked_block}};
  app.add_option("--bug", settings.bug, "Plant one, to see it found")
      ->transform(CLI::CheckedTransformer(bugs));
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, say_seed);
  const Range range = settings.seed != 0 ? Range{settings.seed, 1} : parse_range(settings.seeds);
  if (range.count == 0) {
    std::cerr << "--seeds wants FIRST:COUNT\n";
    return 2;
  }
  Totals totals;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = range.first; seed < range.first + range.count; ++seed) {
    play(seed, settings, totals);
    if (totals.violating >= settings.failures_max) break;
  }
  const auto passed = std::chrono::steady_clock::now() - start;
  const double s = std::chrono::duration<double>(passed).count();
  std::cout << totals.seeds << " seeds, " << totals.violating << " with violations; "
            << totals.requests << " requests, " << totals.done << " of them done, " << totals.tokens
            << " tokens, " << totals.blocks_loaded << " blocks loaded (in " << totals.loading
            << " seeds), " << totals.blocks_handed_over << " handed over (in "
            << totals.handing_over << "), " << totals.messages << " messages between processes, "
            << totals.virtual_s << " virtual s; " << static_cast<double>(totals.seeds) / s
            << " seeds/s\n";
  return totals.violating == 0 ? 0 : 1;
}

}  // namespace
}  // namespace outrider::sim::cluster

int main(int argc, char** argv) {
  return outrider::sim::cluster::run(argc, argv);
}
