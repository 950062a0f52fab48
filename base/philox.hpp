#pragma once

#include <array>
#include <cstdint>

namespace outrider {

inline constexpr int k_philox_rounds = 10;
inline constexpr uint32_t k_philox_factor_0 = 0xD2511F53u;
inline constexpr uint32_t k_philox_factor_1 = 0xCD9E8D57u;
inline constexpr uint32_t k_philox_step_0 = 0x9E3779B9u;
inline constexpr uint32_t k_philox_step_1 = 0xBB67AE85u;

/// Philox4x32-10, a counter-based generator: the output is a pure function of (counter, key).
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
/// Words of their own, not of arrays: most of what unoptimised tests do is draw numbers.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  auto [c0, c1, c2, c3] = counter;
  auto [key0, key1] = key;
  for (int round = 0; round < k_philox_rounds; ++round) {
    const uint64_t product0 = uint64_t{k_philox_factor_0} * c0;
    const uint64_t product1 = uint64_t{k_philox_factor_1} * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(product0);
    key0 += k_philox_step_0;
    key1 += k_philox_step_1;
  }
  return {c0, c1, c2, c3};
}

/// A small sequential generator over Philox for tests and simulators: same seed, same values.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  uint32_t next_u32() {
    if (used_ == 4) {
      block_ =
          philox4x32({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), 0, 0},
                     {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
      ++counter_;
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t next_u64() {
    const uint64_t high = next_u32();
    return (high << 32) | next_u32();
  }
  /// Uniform in [0, bound), bound > 0.
  uint32_t below(uint32_t bound) {
    return static_cast<uint32_t>((uint64_t{next_u32()} * bound) >> 32);
  }
  /// Uniform in [low, high], both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next_u64() % static_cast<uint64_t>(high - low + 1));
  }
  /// Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }
  bool chance(float probability) { return uniform() < probability; }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_{};
  uint32_t used_ = 4;
};

}  // namespace outrider
