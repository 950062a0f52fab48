#include "tests/sim/texts.hpp"

#include "base/philox.hpp"

namespace outrider::sim {
namespace {

constexpr uint32_t k_vocabulary = 32'000;
/// Of the guesses but the first, where that one is wrong.
constexpr std::array<double, k_guesses - 1> k_bonus = {0.60, 0.15, 0.07};

double probability(double first, uint32_t rank) {
  return rank == 0 ? first : (1 - first) * k_bonus[rank - 1];
}

}  // namespace

int32_t Texts::truth(uint32_t request, uint32_t position) const {
  const auto draw = philox4x32({position, request, 0, 0}, {static_cast<uint32_t>(seed_), 0});
  return static_cast<int32_t>(draw[0] % k_vocabulary);
}

std::array<int32_t, k_guesses> Texts::guesses(uint32_t request, uint32_t position) const {
  const auto draw = philox4x32({position, request, 0, 0}, {static_cast<uint32_t>(seed_), 0});
  const auto right = draw[0] % k_vocabulary;
  double chance = draw[1] * 0x1p-32;
  std::array<int32_t, k_guesses> out{};
  bool is_found = false;
  for (uint32_t rank = 0; rank < k_guesses; ++rank) {
    const double share = probability(acceptance_, rank);
    const bool is_right = !is_found && chance < share;
    chance -= share;
    is_found = is_found || is_right;
    out[rank] = static_cast<int32_t>(is_right ? right : (right + 1 + rank) % k_vocabulary);
  }
  return out;
}

std::array<int32_t, k_guesses> Texts::guesses_elsewhere(uint64_t hash) const {
  std::array<int32_t, k_guesses> out{};
  for (uint32_t rank = 0; rank < k_guesses; ++rank) {
    out[rank] = static_cast<int32_t>((hash + rank) % k_vocabulary);
  }
  return out;
}

double Texts::claim(uint32_t rank) const {
  return probability(claimed_, rank);
}

}  // namespace outrider::sim
