#include "kernels/cpu/isa.hpp"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/check.hpp"

namespace outrider::kernels {
namespace {

struct Available {
  Isa isas[4] = {Isa::portable};
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
#endif
    default:
      break;
  }
  OUTRIDER_CHECK(isa == Isa::portable, isa_name(isa));
  return portable::kernel_table();
}

}  // namespace outrider::kernels
