#include "kernels/cpu/isa.hpp"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include "base/check.hpp"

namespace outrider::kernels {
namespace {

struct Available {
  Isa isas[5] = {Isa::portable};
  size_t count = 1;
};

#if defined(__x86_64__)
// Clang 14 knows no names for these two.

bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}

bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

/// Tiles of bytes in the CPU, in the kernel's context switch, and allowed to this process: Linux
/// wants to be asked, since the state is large.
bool has_amx() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return false;  // no xgetbv
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 24 & 3) != 3) return false;
  __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  constexpr long k_request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long k_tile_data = 18;
  return (a >> 17 & 3) == 3 && syscall(SYS_arch_prctl, k_request_permission, k_tile_data) == 0;
#else
  return false;
#endif
}
#endif

Available detect() {
  Available found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool has_avx512 =
      has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni");
  if (has_avx2) found.isas[found.count++] = Isa::avx2;
  if (has_avx2 && has_avx_vnni()) found.isas[found.count++] = Isa::avx_vnni;
  if (has_avx512) found.isas[found.count++] = Isa::avx512;
  if (has_avx512 && has_amx()) found.isas[found.count++] = Isa::amx;
#endif
  return found;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx_vnni:
      return "avx_vnni";
    case Isa::avx512:
      return "avx512";
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

std::span<const Isa> available_isas() {
  static const Available found = detect();
  return {found.isas, found.count};
}

Isa default_isa() {
  const char* wanted = std::getenv("OUTRIDER_ISA");
  for (const Isa isa : available_isas()) {
    if (wanted != nullptr && isa_name(isa) == wanted) return isa;
  }
  return available_isas().back();
}

const KernelTable& kernels_of(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return avx2::kernel_table();
    case Isa::avx_vnni:
      return avx_vnni::kernel_table();
    case Isa::avx512:
      return avx512::kernel_table();
    case Isa::amx:
      return amx::kernel_table();
#endif
    default:
      break;
  }
  OUTRIDER_CHECK(isa == Isa::portable, isa_name(isa));
  return portable::kernel_table();
}

}  // namespace outrider::kernels
