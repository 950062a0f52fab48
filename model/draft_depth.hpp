#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/step_costs.hpp"

namespace outrider::model {

/// A sequence that decodes in a step.
struct DraftCandidate {
  uint32_t context = 0;  ///< tokens behind its row
  /// Of each token hinted at, the probability that it and all before it come true: descending.
  std::span<const float> survival;
};

/// What a step computes beside what decodes: chunks of prompts.
struct StepBeside {
  uint32_t sequences = 0;  ///< Whose prompts they are.
  double ns = 0;           ///< What their rows take.
  double row_ns = 0;       ///< One of them: there the weights are read already.
};

/// Work space of choose_depths, which a caller keeps.
struct DepthScratch {
  struct Slot {
    float gain = 0;  ///< Tokens that it adds, of those that its candidate has before it.
    uint32_t candidate = 0;
    uint32_t index = 0;
  };
  std::vector<Slot> slots;
};

/// How many hints of each candidate a step should verify: those with which the geometric mean of
/// the candidates' speeds (expected tokens for the step's time) is greatest. A longer step slows
/// all of them, so what one gains must outweigh what the others lose: proportional fairness
/// (Kelly, Maulloo, Tan 1998); where all gain alike it is the greatest sum. Slots compete across
/// candidates, the greatest gain first; none is a legal answer, and any must promise that much: the
/// product of all speeds `gain_min` times what it is without, for each candidate that gets some.
/// Prompts beside them are slowed down like candidates without hints, and no hint is cheaper than
/// one of their rows. Depends on nothing else. `depths` gets one number for each candidate; their
/// sum is at most `rows_max`.
void choose_depths(std::span<const DraftCandidate> candidates, const StepBeside& beside,
                   const StepCosts& costs, uint32_t rows_max, double gain_min,
                   DepthScratch& scratch, std::vector<uint32_t>& depths);

/// Whether choose_depths would verify any of the hints if each was certain: if not, nothing is to
/// be learnt from how they fare.
bool could_pay(std::span<const DraftCandidate> candidates, const StepBeside& beside,
               const StepCosts& costs, uint32_t rows_max, double gain_min, DepthScratch& scratch);

}  // namespace outrider::model
