#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

/// Vector loops for code that reads a step's results on the host (the sampler): the fastest
/// instruction set of this machine, the same bits on each. Pure.
namespace outrider::kernels {

inline constexpr size_t k_peak_block = 64;

constexpr size_t peak_count(size_t n) {
  return (n + k_peak_block - 1) / k_peak_block;
}

/// peaks[b] = the highest of row[64 b] … row[64 b + 63]; [peak_count(row.size())]. Returns whether
/// all of the row is finite; without NaN the peaks hold whatever it returns.
bool find_peaks(std::span<const float> row, float* peaks);

/// Philox4x32-10 (base/philox.hpp) of the 16 counters {first + i, counter[1], counter[2],
/// counter[3]}: draw d of counter i goes to out[4 i + d].
void philox_block(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key,
                  uint32_t* out);

}  // namespace outrider::kernels
