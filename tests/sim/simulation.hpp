#pragma once

#include <cstdint>

#include "model/speculation_options.hpp"
#include "tests/sim/machine.hpp"

namespace outrider::sim {

/// One point of the sweep: a target that decodes `batch` requests at all times, a draft on GPUs of
/// its own, and the way between them.
struct Scenario {
  uint32_t batch = 1;
  double acceptance = 0.8;  ///< That the draft's first guess is right.
  double claimed = 0;       ///< What the draft believes of that; 0: the truth.
  double rtt_ms = 0.1;
  uint32_t rows = 256;  ///< Of a step of the draft, which all requests share: DraftRuns::Options.
  uint32_t prompt_tokens = 256;
  uint32_t output_tokens = 512;
  uint32_t tokens = 8'000;  ///< That end the run, or 1/80 of it of each request.
  StepModel target = k_target_70b;
  StepModel draft = k_draft_1b;
  bool has_draft = true;
  uint32_t depth_max = model::SpeculationOptions{}.depth_max;
  bool fixed_depth = false;  ///< As many hints as there are, without the controller.
  /// Drafts are wanted at all times. Else the target finds out whether they pay, as one in service
  /// does whose depth is not fixed: each try the other way costs some tokens.
  bool always_drafts = true;
  uint64_t seed = 1;
};

struct Outcome {
  double speedup = 0;          ///< Tokens per second, of what plain decoding gives.
  double tokens_per_step = 0;  ///< Of one request.
  double drafted = 0;          ///< Share of rows with hints behind them.
  double depth = 0;            ///< Hints verified behind such a row.
  double accepted = 0;         ///< Share of the hints verified.
  double draft_busy = 0;       ///< Share of time.
};

/// Plays the scenario in virtual time. Equal scenarios have equal outcomes.
Outcome simulate(const Scenario& scenario);

/// The best that drafting on the target's own GPUs gives, in lock-step: k steps of the draft, then
/// one that verifies k tokens of each request, for the best k, none included.
double colocated_speedup(const Scenario& scenario);

}  // namespace outrider::sim
