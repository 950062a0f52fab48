#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/hint_trie.hpp"
#include "tests/sim/simulation.hpp"

/// The sweep that docs/speculation-simulated.md shows, as JSON; report.py makes tables and the plot
/// of it.
namespace outrider::sim {
namespace {

using Json = nlohmann::ordered_json;

struct Sweep {
  std::vector<double> acceptances = {0.5, 0.6, 0.7, 0.8, 0.9};
  std::vector<double> rtts_ms = {0.05, 0.1, 0.5, 2, 5, 10};
  std::vector<uint32_t> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  Scenario scenario;  ///< All else.
};

Json play(const Scenario& scenario) {
  const Outcome outcome = simulate(scenario);
  return {
      {"batch", scenario.batch},      {"acceptance", scenario.acceptance},
      {"rtt_ms", scenario.rtt_ms},    {"rows", std::clamp(scenario.rows / scenario.batch, 1u, 40u)},
      {"speedup", outcome.speedup},   {"colocated", colocated_speedup(scenario)},
      {"drafted", outcome.drafted},   {"depth", outcome.depth},
      {"accepted", outcome.accepted}, {"draft_busy", outcome.draft_busy}};
}

Json play_all(const Sweep& sweep) {
  Json points = Json::array();
  for (const double acceptance : sweep.acceptances) {
    for (const uint32_t batch : sweep.batches) {
      for (const double rtt_ms : sweep.rtts_ms) {
        Scenario scenario = sweep.scenario;
        scenario.batch = batch;
        scenario.acceptance = acceptance;
        scenario.rtt_ms = rtt_ms;
        points.push_back(play(scenario));
        scenario.rows = 1;
        points.back()["speedup_one_row"] = simulate(scenario).speedup;
      }
    }
  }
  return points;
}

int run(int argc, char** argv) {
  Sweep sweep;
  CLI::App app("Drafts that ride ahead, in virtual time: a sweep as JSON");
  app.option_defaults()->always_capture_default();
  // Of CLI11 a range has "nan", too.
  const CLI::Validator a_number(
      [](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number: " + text : "";
      },
      "");
  app.add_option("--acceptance", sweep.acceptances, "That the draft's first guess is right")
      ->check(CLI::Range(0.0, 1.0))
      ->check(a_number);
  app.add_option("--rtt-ms", sweep.rtts_ms, "Between target and draft")
      ->check(CLI::Range(0.0, 1e4))
      ->check(a_number);
  app.add_option("--batch", sweep.batches, "Requests that the target decodes at once")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", sweep.scenario.seed, "Of everything random");
  app.add_option("--tokens", sweep.scenario.tokens, "Of a run: more of them, less chance")
      ->check(CLI::Range(1000, 10'000'000));
  app.add_option("--depth-max", sweep.scenario.depth_max, "Hints of a sequence in a step")
      ->check(CLI::Range(0u, model::k_hint_depth_max));
  bool finds_out = false;
  app.add_flag("--finds-out", finds_out, "The target tries whether drafts pay");
  CLI11_PARSE(app, argc, argv);
  sweep.scenario.always_drafts = !finds_out;
  std::cout << play_all(sweep).dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace outrider::sim

int main(int argc, char** argv) {
  return outrider::sim::run(argc, argv);
}
