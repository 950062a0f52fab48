#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace outrider::model {

/// How many rows one step prefills of a sequence at most, by the tokens that stand before them.
/// Chooses who waits and which caches hold, never a bit.
struct DecodePlan {
  /// Measured when the engine starts (`measure_chunk_costs`); `rows` is then what came out.
  bool is_automatic = false;
  std::array<uint32_t, 2> contexts = {512, 2048};  ///< tokens: where the buckets end
  /// Behind up to contexts[0] tokens, up to contexts[1], and above; 0: no bound.
  std::array<uint32_t, 3> rows = {};

  uint32_t rows_max(uint32_t context) const;
  bool bounds_nothing() const { return rows == decltype(rows){}; }
};

/// "chunks of 128 rows behind up to 512 tokens, 256 up to 2048, any above"
std::string to_string(const DecodePlan& plan);

/// What chunks of some sizes take, each with about the same tokens before its middle.
struct ChunkCosts {
  std::vector<uint32_t> rows;                    ///< ascending; the last is a whole step
  std::array<std::vector<Duration>, 3> buckets;  ///< [bucket][rows]; empty: not measured
};

/// For each bucket the largest chunk whose rows cost hardly more than the cheapest; a whole step is
/// no bound. What was not measured is as in the bucket before it.
std::array<uint32_t, 3> choose_chunks(const ChunkCosts& costs);

}  // namespace outrider::model
