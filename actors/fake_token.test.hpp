#pragma once

#include <cstdint>
#include <span>

#include "base/hash.hpp"
#include "base/request.hpp"

namespace outrider::actors {

/// The token that every fake engine gives: a pure function of what the exactness contract allows,
/// so that any two are twins.
inline int32_t fake_token(const GenerationRequest& request, uint32_t choice, uint32_t index) {
  const uint64_t seed = request.sampling.seed + choice;
  const uint64_t prompt = hash64(std::as_bytes(std::span(request.prompt)), seed);
  return static_cast<int32_t>(hash64(std::as_bytes(std::span(&index, 1)), prompt) % 50'000);
}

}  // namespace outrider::actors
