#include "kernels/cuda/emulated_block.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/emulate.hpp"

namespace outrider::kernels::cuda {
namespace {

/// What a kernel does with 64 threads and as many floats of shared memory.
template <class Body>
void run(const Body& body) {
  const Launch launch = {.threads = 64, .shared_bytes = 64 * sizeof(float)};
  for (const bool backwards : {false, true}) emulate(launch, body, backwards);
}

/// Each thread writes its number and reads its neighbour's.
template <bool with_barrier>
struct Exchange {
  std::vector<float>* seen;

  void operator()(EmulatedBlock& block) const {
    auto shared = block.shared<float>(64);
    block.threads([&](uint32_t t) { shared.store(t, static_cast<float>(t)); });
    if (with_barrier) block.barrier();
    block.threads([&](uint32_t t) { (*seen)[t] = shared.load((t + 1) % 64); });
  }
};

TEST(EmulatedBlock, NeighboursSeeEachOtherBehindABarrier) {
  std::vector<float> seen(64);
  run(Exchange<true>{&seen});
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(seen[t], static_cast<float>((t + 1) % 64));
}

TEST(EmulatedBlock, AReadWithoutABarrierEndsTheProcess) {
  std::vector<float> seen(64);
  EXPECT_DEATH(run(Exchange<false>{&seen}), "race");
}

TEST(EmulatedBlock, AWriteOverWhatOthersReadEndsTheProcess) {
  const auto kernel = [](EmulatedBlock& block) {
    auto shared = block.shared<float>(64);
    block.threads([&](uint32_t t) { shared.store(t, 1.0f); });
    block.barrier();
    block.threads([&](uint32_t t) { shared.store(t, shared.load((t + 1) % 64)); });
  };
  EXPECT_DEATH(run(kernel), "race");
}

TEST(EmulatedBlock, AReadOfWhatNobodyWroteEndsTheProcess) {
  const auto kernel = [](EmulatedBlock& block) {
    auto shared = block.shared<float>(64);
    block.threads([&](uint32_t t) { (void)shared.load(t); });
  };
  EXPECT_DEATH(run(kernel), "never written");
}

TEST(EmulatedBlock, MoreSharedMemoryThanWasAskedForEndsTheProcess) {
  EXPECT_DEATH(run([](EmulatedBlock& block) { (void)block.shared<float>(65); }), "taken_");
}

/// Copies by all threads in two groups, of which `left` are not waited for.
template <uint32_t left>
struct Copies {
  const float* from;
  std::vector<float>* seen;

  void operator()(EmulatedBlock& block) const {
    auto shared = block.shared<float>(64);
    block.threads([&](uint32_t t) {
      for (uint32_t group = 0; group < 2; ++group) {
        if (t < 8) shared.copy_async((group * 8 + t) * 16, from + (group * 8 + t) * 4);
        block.end_copies();
      }
      block.wait_for_copies<left>();
    });
    block.barrier();
    block.threads([&](uint32_t t) { (*seen)[t] = shared.load(t); });
  }
};

TEST(EmulatedBlock, CopiesAreThereWhenTheyWereWaitedFor) {
  alignas(16) float from[64];
  for (uint32_t i = 0; i < 64; ++i) from[i] = static_cast<float>(i);
  std::vector<float> seen(64);
  run(Copies<0>{from, &seen});
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), from));
  EXPECT_DEATH(run(Copies<1>{from, &seen}), "under way");
}

/// A stretch of 64 floats comes to one of two places, in turns 0 and 1 of it.
struct CopiesInTurn {
  const float* from;
  std::vector<float>* seen;
  bool waits = true;

  void operator()(EmulatedBlock& block) const {
    auto shared = block.shared<float>(128);
    EmulatedBlock::Copies<2, 1> copies(block);
    for (uint32_t turn = 0; turn < 2; ++turn) {
      copies.start(1, shared, 256, from + 64 * turn, 256);
      copies.close(1);
      if (waits) copies.wait(1, turn);
      block.barrier();
      block.threads([&](uint32_t t) { (*seen)[64 * turn + t] = shared.load(64 + t); });
      block.barrier();
    }
  }
};

TEST(EmulatedBlock, CopiedStretchesAreThereInTheirTurn) {
  alignas(16) float from[128];
  for (uint32_t i = 0; i < 128; ++i) from[i] = static_cast<float>(i);
  std::vector<float> seen(128);
  const Launch launch = {.threads = 64, .shared_bytes = 128 * sizeof(float) + 32};
  emulate(launch, CopiesInTurn{from, &seen}, false);
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), from));
  EXPECT_DEATH(emulate(launch, CopiesInTurn{from, &seen, false}, false), "under way");
}

TEST(EmulatedBlock, LanesLookAtEachOther) {
  std::vector<float> highest(64);
  std::vector<uint32_t> taken(64);
  bool any_before = true, any_behind = false;
  run([&](EmulatedBlock& block) {
    auto value = block.local<float>();
    auto word = block.local<uint32_t>();
    block.threads([&](uint32_t t) {
      value[t] = -static_cast<float>(t);
      word[t] = 0;
    });
    any_before = block.any(word);
    block.group_max<4>(value);
    block.threads([&](uint32_t t) { word[t] = t; });
    any_behind = block.any(word);
    block.take_from_lane(word, [](uint32_t t) { return t % 32 / 4 * 4 + 2; });
    block.threads([&](uint32_t t) {
      highest[t] = value[t];
      taken[t] = word[t];
    });
  });
  EXPECT_FALSE(any_before);
  EXPECT_TRUE(any_behind);
  for (uint32_t t = 0; t < 64; ++t) {
    EXPECT_EQ(highest[t], -static_cast<float>(t / 4 * 4));
    EXPECT_EQ(taken[t], t / 4 * 4 + 2);
  }
}

/// What tensor cores do to rows in shared memory, while other things happen.
enum class Meanwhile { nothing, rows_change, not_started };
struct RowsByTensorCores {
  std::vector<float>* c;
  Meanwhile meanwhile = Meanwhile::nothing;

  /// Halves: row r of 16 has r + k at k of the first 16, and what a was makes the sum of them.
  void operator()(EmulatedBlock& block) const {
    auto rows = block.shared<uint16_t>(16 * 64);
    struct Fragments {
      uint32_t a[4];
      float c[8];
    };
    auto of = block.local<Fragments>();
    block.threads([&](uint32_t t) {
      for (uint32_t i = t; i < 16 * 64; i += 64) {
        const uint32_t row = i / 64, k = i % 64;
        rows.store(row * 64 + swizzled_piece(row, k / 8) * 8 + k % 8,
                   float_as_half(k < 16 ? static_cast<float>(row + k) : 100.0f));
      }
      for (uint32_t& pair : of[t].a) pair = as_half2(1.0f, 1.0f);
    });
    block.barrier();
    block.start_rows_mma<2>(
        rows, 0, 0, true, [&](uint32_t t) { return of[t].a; }, [&](uint32_t t) { return of[t].c; });
    if (meanwhile != Meanwhile::not_started) block.commit_rows_mma();
    block.barrier();
    if (meanwhile == Meanwhile::rows_change) {
      block.threads([&](uint32_t t) { rows.store(t, 0); });
    }
    block.threads([&](uint32_t t) { EXPECT_TRUE(std::isnan(of[t].c[0])); });
    block.finish_rows_mma<2, 0>([&](uint32_t t) { return of[t].c; });
    block.threads([&](uint32_t t) {
      for (uint32_t i = 0; i < 8; ++i) {
        (*c)[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + t % 4 * 2 + i % 2] =
            of[t].c[i];
      }
    });
  }
};

TEST(EmulatedBlock, TensorCoresReadSwizzledRowsUntilTheyAreWaitedFor) {
  std::vector<float> c(32 * 16);
  const Launch launch = {.threads = 64, .shared_bytes = 16 * 128};
  for (const bool backwards : {false, true}) {
    emulate(launch, RowsByTensorCores{&c}, backwards);
    for (uint32_t i = 0; i < 32 * 16; ++i) {
      EXPECT_EQ(c[i], 120.0f + 16.0f * static_cast<float>(i % 16)) << i;
    }
  }
  const auto with = [&](Meanwhile what) { emulate(launch, RowsByTensorCores{&c, what}, false); };
  EXPECT_DEATH(with(Meanwhile::rows_change), "tensor cores read it");
  EXPECT_DEATH(with(Meanwhile::not_started), "not committed");
}

TEST(EmulatedBlock, WarpsAddByPairs) {
  std::vector<float> sums(64);
  std::vector<uint32_t> highest(64);
  run([&](EmulatedBlock& block) {
    auto value = block.local<float>();
    auto number = block.local<uint32_t>();
    block.threads([&](uint32_t t) {
      value[t] = static_cast<float>(t);
      number[t] = t * 7 % 64;
    });
    block.warp_sum(value);
    block.warp_max(number);
    block.threads([&](uint32_t t) {
      sums[t] = value[t];
      highest[t] = number[t];
    });
  });
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(sums[t], t < 32 ? 496.0f : 1520.0f);
  EXPECT_EQ(highest[5], 63u);  // of thread 9
}

/// By the layout of PTX's mma.m16n8k16: a = rows of numbers, b = a matrix that picks and scales.
TEST(EmulatedBlock, MmaMultipliesFragments) {
  float a[16][16], b[16][8], c[16][8] = {};
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>(i * 16 + k);
    for (int j = 0; j < 8; ++j) b[i][j] = i == 2 * j ? 0.5f : i == 2 * j + 1 ? -1.0f : 0.0f;
  }
  const auto pair = [](float low, float high) { return as_half2(low, high); };
  run([&](EmulatedBlock& block) {
    struct Fragments {
      uint32_t a[4], b[2];
      float c[4];
    };
    auto of = block.local<Fragments>();
    block.threads([&](uint32_t t) {
      const uint32_t row = t % 32 / 4, k = t % 4 * 2;
      Fragments& f = of[t];
      f.a[0] = pair(a[row][k], a[row][k + 1]);
      f.a[1] = pair(a[row + 8][k], a[row + 8][k + 1]);
      f.a[2] = pair(a[row][k + 8], a[row][k + 9]);
      f.a[3] = pair(a[row + 8][k + 8], a[row + 8][k + 9]);
      f.b[0] = pair(b[k][row], b[k + 1][row]);
      f.b[1] = pair(b[k + 8][row], b[k + 9][row]);
      for (float& x : f.c) x = 1.0f;
    });
    block.mma([](uint32_t t) { return t < 32; }, [&](uint32_t t) { return of[t].a; },
              [&](uint32_t t) { return of[t].b; }, [&](uint32_t t) { return of[t].c; });
    block.threads([&](uint32_t t) {
      if (t >= 32) return;
      for (uint32_t i = 0; i < 4; ++i) c[t / 4 + i / 2 * 8][t % 4 * 2 + i % 2] = of[t].c[i];
    });
  });
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(c[i][j], 1.0f + 0.5f * a[i][2 * j] - a[i][2 * j + 1]) << i << ' ' << j;
    }
  }
}

}  // namespace
}  // namespace outrider::kernels::cuda
