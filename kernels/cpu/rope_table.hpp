#pragma once

#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <vector>

namespace outrider::kernels {

/// cos and sin of position * scale * base^(-2 i / rotary_dim) / factors[i], computed in double by
/// base/fmath and rounded once. Immutable, shareable between threads.
class CpuRopeTable final : public RopeTable {
 public:
  CpuRopeTable(const RopeParams& params, uint32_t positions, ThreadPool& pool);

  RopeParams::Style style() const { return style_; }
  uint32_t rotary_dim() const { return rotary_dim_; }
  uint32_t positions() const { return positions_; }
  bool hadamard() const { return hadamard_; }
  /// [rotary_dim / 2]
  const float* cosine(size_t position) const { return &values_[position * rotary_dim_]; }
  const float* sine(size_t position) const { return cosine(position) + rotary_dim_ / 2; }

 private:
  RopeParams::Style style_;
  uint32_t rotary_dim_;
  uint32_t positions_;
  bool hadamard_;
  std::vector<float> values_;  ///< [positions][cosines, sines]
};

}  // namespace outrider::kernels
