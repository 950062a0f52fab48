// Compiled with the instruction set of its name (CMakeLists.txt here).
#if defined(__x86_64__)
#define OUTRIDER_ISA amx
#include "kernels/cpu/amx_matmul.inl.hpp"

namespace outrider::kernels::amx {
namespace {

/// The instructions. Own assembly instead of <immintrin.h>, whose loads of tiles (GCC 12) do not
/// wait for stores to memory before them, and whose tile numbers must be literals.
struct AmxTiles {
  [[gnu::always_inline]] static void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  [[gnu::always_inline]] static void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int tile>
  [[gnu::always_inline]] static void load(const void* rows, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(rows), "r"(stride), "i"(tile)
                     : "memory");
  }
  template <int tile>
  [[gnu::always_inline]] static void store(void* rows, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(rows), "r"(stride), "i"(tile)
                     : "memory");
  }
  template <int tile>
  [[gnu::always_inline]] static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  /// sums += a * b, signed times signed bytes.
  template <int sums, int a, int b>
  [[gnu::always_inline]] static void dot_signed() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(a), "i"(b));
  }
  /// Unsigned times signed.
  template <int sums, int a, int b>
  [[gnu::always_inline]] static void dot_unsigned() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(a), "i"(b));
  }
};

}  // namespace

const KernelTable& kernel_table() noexcept {
  static const KernelTable table = amx_table<AmxTiles, avx512::kernel_table>();
  return table;
}

}  // namespace outrider::kernels::amx
#endif
