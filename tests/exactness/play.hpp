#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/philox.hpp"
#include "model/engine.hpp"
#include "tests/exactness/axes.hpp"
#include "tests/exactness/outcome.hpp"
#include "tests/exactness/store.hpp"

namespace outrider::exactness {

/// How often each disturbance really happened.
struct Disturbances {
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t parkings = 0;
  uint64_t strangers = 0;
  uint64_t resumptions = 0;
  uint64_t cached_tokens = 0;  ///< Of prompts, found in the prefix index.
  uint64_t evictions = 0;      ///< Blocks that the index lost.
  uint64_t read_blocks = 0;    ///< That came from the store.
  uint64_t restarts = 0;       ///< Of the store.
  uint64_t bounded_plans = 0;  ///< Batches under a decode plan.
  uint64_t drafted = 0;        ///< Hints that were verified.
  uint64_t accepted = 0;       ///< Of these, those that came true.
  uint64_t chosen = 0;         ///< Of those verified, where the controller chose how many.
  uint64_t explored = 0;       ///< Steps with hints that do not pay by what it knows of costs.
  uint64_t model_hints = 0;    ///< Of a draft model, that were of use when they came.
  uint64_t windowed = 0;       ///< Requests with a window.
  uint64_t far_rows = 0;       ///< Rows whose window began behind the first chunk of attention.
  uint64_t ended_pins = 0;     ///< Blocks whose pins' time came.
  uint64_t other_kinds = 0;    ///< Requests whose keys and values were not fp16.
  uint64_t turned_keys = 0;    ///< Of these, with keys multiplied by a Hadamard matrix.

  Disturbances& operator+=(const Disturbances& other);
};

struct Disturbance {
  const char* name;
  uint64_t Disturbances::*count;
  uint64_t wanted;  ///< In a few hundred requests.
};
/// All of them.
inline constexpr Disturbance k_disturbances[] = {
    {"steps", &Disturbances::steps, 1},
    {"preemptions", &Disturbances::preemptions, 1},
    {"parkings", &Disturbances::parkings, 1},
    {"strangers cancelled", &Disturbances::strangers, 1},
    {"resumptions", &Disturbances::resumptions, 1},
    {"cached tokens", &Disturbances::cached_tokens, 500},
    {"evictions", &Disturbances::evictions, 1},
    {"blocks from the store", &Disturbances::read_blocks, 1},
    {"restarts of it", &Disturbances::restarts, 1},
    {"batches under a decode plan", &Disturbances::bounded_plans, 1},
    {"hints verified", &Disturbances::drafted, 100},
    {"came true", &Disturbances::accepted, 100},
    {"verified as the controller chose", &Disturbances::chosen, 20},
    {"steps that explored what hints cost", &Disturbances::explored, 5},
    {"hints of a draft model", &Disturbances::model_hints, 100},
    {"requests with a window", &Disturbances::windowed, 1},
    {"rows whose window began behind the first chunk", &Disturbances::far_rows, 100},
    {"pins ended", &Disturbances::ended_pins, 1},
    {"requests with other KV than fp16", &Disturbances::other_kinds, 1},
    {"requests with turned keys", &Disturbances::turned_keys, 1},
};

/// Requests to run together, and what they are known to answer (empty in the reference run).
struct Scene {
  std::vector<const GenerationRequest*> requests;
  std::vector<const std::vector<Outcome>*> known;
  uint32_t context_tokens = 0;
  std::shared_ptr<HarnessStore> store;  ///< Used where the axes say so.
};

/// Runs the requests in one engine under the axes; the outcome of each choice of each, with
/// resumed tokens put back in front. Aborts when the engine breaks its protocol: an index that does
/// not follow, a second finish, a block that is not conserved, a request that is refused.
std::vector<std::vector<Outcome>> play(const std::shared_ptr<const model::LoadedModel>& model,
                                       const Axes& axes, const Scene& scene, Random& random,
                                       Disturbances& disturbances);

}  // namespace outrider::exactness
