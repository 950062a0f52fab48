#pragma once

#include <cstdint>

namespace outrider::model {

/// Drafting. Bits do not depend on it.
struct SpeculationOptions {
  bool ngram = false;        ///< Drafts from how the request's own text went on before.
  uint32_t depth_max = 8;    ///< Hints that a step verifies of one sequence, at most.
  bool fixed_depth = false;  ///< Always as many as there are, whatever they promise.
  float accept_min = 0;      ///< None that comes true less often, and none behind it.
  /// Share of the time in which something is verified that does not pay by what is known: what is
  /// never run is never measured again.
  double explore_share = 0.005;
  uint32_t explore_every = 16;  ///< Steps after which it is looked for anew, 1 at least.
};

}  // namespace outrider::model
