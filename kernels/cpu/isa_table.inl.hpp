#pragma once

// Included once by each isa_*.cpp, after it has named OUTRIDER_ISA.
#include "kernels/cpu/attention.inl.hpp"
#include "kernels/cpu/host.inl.hpp"
#include "kernels/cpu/matmul.inl.hpp"
#include "kernels/cpu/quantize.inl.hpp"
#include "kernels/cpu/rows.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

const KernelTable& kernel_table() noexcept {
  static constexpr KernelTable k_table = {
      .matmul = matmul,
      .quantize_row = quantize_row,
      .attend = attend,
      .combine = combine,
      .kv_append = kv_append,
      .rms_norm = rms_norm,
      .rope_adjacent = rope_adjacent,
      .rope_halves = rope_halves,
      .hadamard = hadamard,
      .swiglu = swiglu_array,
      .exp = exp_array,
      .exp2_of_negative = exp2_array,
      .find_peaks = find_peaks,
      .philox_block = philox_block,
  };
  return k_table;
}

}  // namespace outrider::kernels::OUTRIDER_ISA
