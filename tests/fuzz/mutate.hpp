#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.hpp"

namespace outrider::fuzz {

using Input = std::vector<uint8_t>;

/// Inputs never grow beyond this, so that a run stays fast.
inline constexpr size_t input_bytes_max = size_t{256} << 10;

/// One of `corpus` (which may be empty) with one to eight small changes: bits, bytes, edge values
/// of integers, and parts removed, repeated or taken from other inputs. A pure function of the
/// corpus and the generator's state.
Input mutate(std::span<const Input> corpus, Random& random);

}  // namespace outrider::fuzz
