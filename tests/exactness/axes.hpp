#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/philox.hpp"
#include "kernels/ops.hpp"
#include "model/decode_plan.hpp"

namespace outrider::exactness {

/// All that may differ between two runs of a request without changing its answer. A new feature
/// that promises so (a drafter, a cache tier, a kill) adds its field here, draws it in
/// `random_axes`, names it in `describe` and obeys it in `play`.
struct Axes {
  // The machine.
  kernels::Isa isa = kernels::Isa::portable;
  uint32_t threads = 1;
  // The engine.
  uint32_t batch_tokens = 2048;
  model::DecodePlan decode_plan;
  uint32_t sequences = 64;
  uint32_t block_tokens = 16;
  /// Part of the answer: the reference of a request runs with the same one.
  kernels::KvKinds kv_kinds;
  uint32_t local_window = 0;     ///< Likewise.
  uint32_t spare_blocks = 1024;  ///< Of the pool, beyond one longest sequence.
  bool prefix_caching = false;
  bool store = false;  ///< Below the pool, with what earlier batches left in it.
  bool restart_store = false;
  uint32_t draft_depth = 0;    ///< Hints that a step verifies of a choice; 0: it does not draft.
  bool fixed_depth = true;     ///< Else the controller decides.
  bool rows_are_dear = false;  ///< As it is told first.
  bool ngram = false;
  bool draft_model = false;   ///< The same model, by messages.
  uint32_t draft_window = 0;  ///< Of its attention: with one it errs now and then.
  // What happens, as probabilities a step.
  float arrival = 1.0f;  ///< The next request is submitted.
  float preempt_all = 0;
  float evict = 0;    ///< Of some blocks that only the prefix index holds.
  float drop = 0;     ///< Of some blocks that the store has.
  float rechunk = 0;  ///< Another batch_tokens from here on.
  float rethread = 0;
  float park = 0;    ///< Of one request; unparked with 0.3 a step.
  float hint = 0;    ///< For each choice, of a hint that is right or a lie.
  float cancel = 0;  ///< A stranger joins, to be cancelled some steps later.
  // Who resumes.
  float resume = 0;  ///< Probability that a request starts after some tokens of its own answer.
};

/// Each kind for keys and values, some pairs, some with keys turned.
std::span<const kernels::KvKinds> all_kv_kinds();

/// The axes of the run that everything is compared with: alone, one thread, one chunk.
Axes reference_axes(kernels::Isa isa, const kernels::KvKinds& kv_kinds, uint32_t local_window);

Axes random_axes(Random& random, std::span<const kernels::Isa> isas,
                 const kernels::KvKinds& kv_kinds, uint32_t local_window);

/// For a report.
std::string describe(const Axes& axes);

}  // namespace outrider::exactness
