#include "tools/bench_limits.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.hpp"

namespace outrider::tools {
namespace {

using kernels::Isa;

/// More than any cache that is ours; a longer read goes round.
constexpr size_t k_memory_bytes_max = size_t{1} << 30;
constexpr size_t k_piece_bytes = size_t{1} << 20;

/// Reads, and adds up so that each load has a use.
using ReadLoop = void (*)(const std::byte* at, size_t turns);

void read_words(const std::byte* at, size_t turns) {
  uint64_t total[4] = {};
  for (size_t i = 0; i < turns * k_read_turn_bytes; i += sizeof(total)) {
    uint64_t words[4];
    std::memcpy(words, at + i, sizeof(words));
    for (size_t lane = 0; lane < 4; ++lane) total[lane] += words[lane];
  }
  asm volatile("" : : "r"(total[0] + total[1] + total[2] + total[3]));
}

/// One round of a loop of independent dot products into 12 registers, so that neither latency nor
/// memory counts.
struct DotLoop {
  void (*run)(uint64_t rounds);
  double operations_per_round;
};

#if defined(__x86_64__)
// Written as assembly: this file is compiled for the oldest processor, and asks only for what the
// caller says is there. Register 15 holds one operand of each, 14 the other; 13 takes products.
#define OUTRIDER_TWELVE(x) x(0) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11)
#define OUTRIDER_DOT_LOOP(name, setup, step, after)                                              \
  void name(uint64_t rounds) {                                                                   \
    asm volatile(setup "1:\n\t" OUTRIDER_TWELVE(step) "dec %0\n\tjnz 1b\n\t" after               \
                 : "+r"(rounds)                                                                  \
                 :                                                                               \
                 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                \
  }

#define OUTRIDER_SETUP_512                          \
  "vpternlogd $0xff, %%zmm15, %%zmm15, %%zmm15\n\t" \
  "vpabsw %%zmm15, %%zmm14\n\t"
#define OUTRIDER_DOT8_512(i) "vpdpbusd %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define OUTRIDER_DOT16_512(i) "vpdpwssd %%zmm15, %%zmm14, %%zmm" #i "\n\t"
#define OUTRIDER_SETUP_256                 \
  "vpcmpeqd %%ymm15, %%ymm15, %%ymm15\n\t" \
  "vpabsw %%ymm15, %%ymm14\n\t"
#define OUTRIDER_DOT8_256(i)                 \
  "vpmaddubsw %%ymm15, %%ymm14, %%ymm13\n\t" \
  "vpmaddwd %%ymm14, %%ymm13, %%ymm13\n\t"   \
  "vpaddd %%ymm13, %%ymm" #i ", %%ymm" #i "\n\t"
#define OUTRIDER_DOT16_256(i)              \
  "vpmaddwd %%ymm15, %%ymm14, %%ymm13\n\t" \
  "vpaddd %%ymm13, %%ymm" #i ", %%ymm" #i "\n\t"
#define OUTRIDER_DOT8_VEX(i) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define OUTRIDER_DOT16_VEX(i) "%{vex%} vpdpwssd %%ymm15, %%ymm14, %%ymm" #i "\n\t"
#define OUTRIDER_SETUP_128       \
  "pcmpeqd %%xmm15, %%xmm15\n\t" \
  "movdqa %%xmm15, %%xmm14\n\t"
#define OUTRIDER_DOT16_128(i)    \
  "movdqa %%xmm14, %%xmm13\n\t"  \
  "pmaddwd %%xmm15, %%xmm13\n\t" \
  "paddd %%xmm13, %%xmm" #i "\n\t"

OUTRIDER_DOT_LOOP(dot8_avx512, OUTRIDER_SETUP_512, OUTRIDER_DOT8_512, "vzeroupper")
OUTRIDER_DOT_LOOP(dot16_avx512, OUTRIDER_SETUP_512, OUTRIDER_DOT16_512, "vzeroupper")
OUTRIDER_DOT_LOOP(dot8_avx_vnni, OUTRIDER_SETUP_256, OUTRIDER_DOT8_VEX, "vzeroupper")
OUTRIDER_DOT_LOOP(dot16_avx_vnni, OUTRIDER_SETUP_256, OUTRIDER_DOT16_VEX, "vzeroupper")
OUTRIDER_DOT_LOOP(dot8_avx2, OUTRIDER_SETUP_256, OUTRIDER_DOT8_256, "vzeroupper")
OUTRIDER_DOT_LOOP(dot16_avx2, OUTRIDER_SETUP_256, OUTRIDER_DOT16_256, "vzeroupper")
OUTRIDER_DOT_LOOP(dot16_sse2, OUTRIDER_SETUP_128, OUTRIDER_DOT16_128, "")

/// Tiles of 16 rows of 64 bytes, six sums. A 16-bit product takes two, of high and of low bytes.
void dot8_amx(uint64_t rounds) {
  struct alignas(64) Config {
    uint8_t palette[16] = {1};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr Config k_config;
#define OUTRIDER_DOT_TILE(i) "tdpbusd %%tmm7, %%tmm6, %%tmm" #i "\n\t"
  asm volatile("ldtilecfg %1\n\t1:\n\t" OUTRIDER_DOT_TILE(0) OUTRIDER_DOT_TILE(1)
                   OUTRIDER_DOT_TILE(2) OUTRIDER_DOT_TILE(3) OUTRIDER_DOT_TILE(4)
                       OUTRIDER_DOT_TILE(5) "dec %0\n\tjnz 1b\n\ttilerelease"
               : "+r"(rounds)
               : "m"(k_config)
               : "cc");
}
constexpr double k_amx_operations = 6 * 16 * 16 * 64 * 2.0;

#define OUTRIDER_READ_LOOP(name, turn)                                                     \
  void name(const std::byte* at, size_t turns) {                                           \
    asm volatile("1:\n\t" turn "add $256, %0\n\tdec %1\n\tjnz 1b\n\tvzeroupper"            \
                 : "+r"(at), "+r"(turns)                                                   \
                 :                                                                         \
                 : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
                   "xmm7");                                                                \
  }
#define OUTRIDER_READ_64(i, at) "vpaddq " #at "(%0), %%zmm" #i ", %%zmm" #i "\n\t"
#define OUTRIDER_READ_32(i, at) "vpaddq " #at "(%0), %%ymm" #i ", %%ymm" #i "\n\t"
OUTRIDER_READ_LOOP(read_avx512, OUTRIDER_READ_64(0, 0) OUTRIDER_READ_64(1, 64)
                                    OUTRIDER_READ_64(2, 128) OUTRIDER_READ_64(3, 192))
OUTRIDER_READ_LOOP(read_avx2,
                   OUTRIDER_READ_32(0, 0) OUTRIDER_READ_32(1, 32) OUTRIDER_READ_32(2, 64)
                       OUTRIDER_READ_32(3, 96) OUTRIDER_READ_32(4, 128) OUTRIDER_READ_32(5, 160)
                           OUTRIDER_READ_32(6, 192) OUTRIDER_READ_32(7, 224))

ReadLoop read_loop(Isa isa) {
  if (isa == Isa::portable) return read_words;
  return isa == Isa::avx512 || isa == Isa::amx ? read_avx512 : read_avx2;
}

DotLoop dot_loop(Isa isa, MachineLimits::Dot dot) {
  const bool bytes = dot == MachineLimits::Dot::int8;
  switch (isa) {
    case Isa::amx:
      return {dot8_amx, bytes ? k_amx_operations : k_amx_operations / 2};
    case Isa::avx512:
      return bytes ? DotLoop{dot8_avx512, 12 * 128.0} : DotLoop{dot16_avx512, 12 * 64.0};
    case Isa::avx_vnni:
      return bytes ? DotLoop{dot8_avx_vnni, 12 * 64.0} : DotLoop{dot16_avx_vnni, 12 * 32.0};
    case Isa::avx2:
      return bytes ? DotLoop{dot8_avx2, 12 * 64.0} : DotLoop{dot16_avx2, 12 * 32.0};
    case Isa::portable:
      break;
  }
  return {dot16_sse2, 12 * 16.0};  // 8-bit products have to be widened first
}
#else
ReadLoop read_loop(Isa) {
  return read_words;
}

DotLoop dot_loop(Isa, MachineLimits::Dot) {
  return {[](uint64_t rounds) {
            volatile uint32_t a = 3;
            uint32_t total = 0;
            for (uint64_t i = 0; i < rounds; ++i) total += a * static_cast<uint32_t>(i & 255);
            a = total;
          },
          2.0};
}
#endif

}  // namespace

void read_all(Isa isa, const std::byte* memory, size_t bytes) {
  OUTRIDER_CHECK(bytes > 0 && bytes % k_read_turn_bytes == 0, bytes);
  read_loop(isa)(memory, bytes / k_read_turn_bytes);
}

void MachineLimits::reserve(size_t bytes) {
  const size_t needed =
      (std::min(bytes, k_memory_bytes_max) + k_piece_bytes - 1) / k_piece_bytes * k_piece_bytes;
  if (needed <= memory_bytes_) return;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, needed)));
  OUTRIDER_CHECK(memory_ != nullptr, needed);
  std::memset(memory_.get(), 1, needed);  // an untouched page is not memory yet
  memory_bytes_ = needed;
}

double MachineLimits::read_seconds(size_t bytes) {
  reserve(bytes);
  const size_t pieces = (bytes + k_piece_bytes - 1) / k_piece_bytes;
  const TimePoint begin = clock_.now();
  pool_.parallel_for(pieces, [&](size_t i) {
    const size_t at = i * k_piece_bytes;
    const size_t piece = std::min(k_piece_bytes, bytes - at) + k_read_turn_bytes - 1;
    read_all(isa_, memory_.get() + at % memory_bytes_,
             piece / k_read_turn_bytes * k_read_turn_bytes);
  });
  return to_seconds(clock_.now() - begin);
}

double MachineLimits::dot_operations_per_s(Dot dot) {
  const DotLoop loop = dot_loop(isa_, dot);
  constexpr uint64_t k_rounds = 100'000;
  constexpr uint32_t k_bursts = 8;
  // More items than threads: the time of one that another process takes away is not lost.
  const size_t items = size_t{4} * pool_.threads();
  double& best = best_[static_cast<size_t>(dot)];
  for (uint32_t i = 0; i < k_bursts; ++i) {
    const TimePoint begin = clock_.now();
    pool_.parallel_for(items, [&](size_t) { loop.run(k_rounds); });
    const double seconds = to_seconds(clock_.now() - begin);
    best =
        std::max(best, loop.operations_per_round * static_cast<double>(k_rounds * items) / seconds);
  }
  return best;
}

}  // namespace outrider::tools
