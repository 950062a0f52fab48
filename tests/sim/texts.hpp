#pragma once

#include <array>
#include <cstdint>

namespace outrider::sim {

/// The draft's guesses at one position, most probable first.
inline constexpr uint32_t k_guesses = 4;

/// What requests go on with, and what a draft model guesses: pure functions of the seed. At each
/// position, whatever came before, the draft's first guess is right with the probability
/// `acceptance`. Where it is wrong, the second, third and fourth are with 0.60, 0.15 and 0.07: the
/// bonus hits that the design's prediction assumes.
class Texts {
 public:
  /// The draft believes that its first guess is right with the probability `claimed`.
  Texts(uint64_t seed, double acceptance, double claimed)
      : seed_(seed), acceptance_(acceptance), claimed_(claimed) {}

  int32_t truth(uint32_t request, uint32_t position) const;
  /// Guesses at what follows the right text.
  std::array<int32_t, k_guesses> guesses(uint32_t request, uint32_t position) const;
  /// Guesses at what follows a wrong text, known by its hash.
  std::array<int32_t, k_guesses> guesses_elsewhere(uint64_t hash) const;
  /// What the draft says of a guess: that it is right where the text before it is.
  double claim(uint32_t rank) const;

 private:
  uint64_t seed_;
  double acceptance_;
  double claimed_;
};

}  // namespace outrider::sim
