// The AMX kernels over AVX-512 vectors and emulated tiles, for machines that have only the former:
// compiled with the instruction set of its name (kernels/CMakeLists.txt), called by amx.test.cpp.
#if defined(__x86_64__)
#define OUTRIDER_ISA amx_emulated_avx512
#include "kernels/cpu/amx_emulation.inl.hpp"

namespace outrider::kernels::amx_emulated_avx512 {

const KernelTable& kernel_table() noexcept;
const KernelTable& kernel_table() noexcept {
  static const KernelTable table = amx_table<EmulatedTiles, avx512::kernel_table>();
  return table;
}

}  // namespace outrider::kernels::amx_emulated_avx512
#endif
