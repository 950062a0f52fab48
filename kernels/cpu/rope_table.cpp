#include "kernels/cpu/rope_table.hpp"

#include "base/check.hpp"
#include "base/fmath.hpp"

namespace outrider::kernels {

CpuRopeTable::CpuRopeTable(const RopeParams& params, uint32_t positions, ThreadPool& pool)
    : style_(params.style),
      rotary_dim_(params.rotary_dim),
      positions_(positions),
      hadamard_(params.hadamard),
      values_(size_t{positions} * params.rotary_dim) {
  OUTRIDER_CHECK(rotary_dim_ % 2 == 0, rotary_dim_);
  const size_t half = rotary_dim_ / 2;
  std::vector<double> frequency(half);
  for (size_t i = 0; i < half; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / rotary_dim_;
    frequency[i] = pow_f64(params.base, exponent);
    if (params.factors != nullptr) frequency[i] /= params.factors[i];
  }
  constexpr size_t k_positions_per_item = 256;
  const size_t items = (positions + k_positions_per_item - 1) / k_positions_per_item;
  pool.parallel_for(items, [&](size_t item) {
    for (size_t j = 0; j < k_positions_per_item; ++j) {
      const size_t position = item * k_positions_per_item + j;
      if (position >= positions_) return;
      float* row = &values_[position * rotary_dim_];
      for (size_t i = 0; i < half; ++i) {
        const double turn = static_cast<double>(position) * params.scale * frequency[i];
        const SinCos value = sincos_f64(turn);
        row[i] = static_cast<float>(value.cos);
        row[half + i] = static_cast<float>(value.sin);
      }
    }
  });
}

}  // namespace outrider::kernels
