#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/math.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels::cuda {

/// RowSampler's draws, a block each.
struct SampleRows {
  static constexpr uint32_t k_threads = 512;
  static constexpr size_t k_shared_bytes = 2 * k_threads * sizeof(uint32_t);

  const float* logits = nullptr;  ///< [rows, vocabulary]
  const RowDraw* draws = nullptr;
  uint32_t vocabulary = 0;
  int32_t* chosen = nullptr;  ///< of each draw

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const RowDraw& draw = draws[block.x()];
    const float* const row = logits + size_t{draw.row} * vocabulary;
    auto keys = block.template shared<uint32_t>(k_threads);
    auto ids = block.template shared<uint32_t>(k_threads);
    auto best = block.template local<Best>();
    auto highest = block.template local<Best>();
    block.threads([&](uint32_t t) {
      best[t] = {};
      for (uint32_t i = t; i < vocabulary; i += k_threads) see(key_of(row[i]), i, best[t]);
    });
    take_best(block, keys, ids, best, highest);
    block.threads([&](uint32_t t) {
      best[t] = highest[t];
      if (draw.temperature > 0) best[t] = best_draw(row, draw, of_ordered_bits(highest[t].key), t);
    });
    auto winner = block.template local<Best>();
    take_best(block, keys, ids, best, winner);
    block.threads([&](uint32_t t) {
      if (t != 0) return;
      chosen[block.x()] = highest[t].key == k_odd ? -1 : static_cast<int32_t>(winner[t].id);
    });
  }

 private:
  /// Above the key of any number.
  static constexpr uint32_t k_odd = 0xFFFFFFFFu;

  struct Best {
    uint32_t key = 0;
    uint32_t id = 0xFFFFFFFFu;
  };

  /// In the order of floats; zeros are equal.
  OUTRIDER_KERNEL uint32_t key_of(float x) const {
    if (!(magnitude(x) < float_of(0x7F800000u))) return k_odd;
    return ordered_bits(x + 0.0f);
  }
  OUTRIDER_KERNEL void see(uint32_t key, uint32_t id, Best& best) const {
    if (key < best.key || (key == best.key && id > best.id)) return;
    best = {key, id};
  }

  /// Of the ids 4 t … 4 t + 3, those 4 * 512 behind them, and so on.
  OUTRIDER_KERNEL Best best_draw(const float* row, const RowDraw& draw, float highest,
                                 uint32_t t) const {
    Best best;
    for (uint32_t group = t; group * 4 < vocabulary; group += k_threads) {
      const Draws bits = noise_bits(draw.seed, draw.position, group);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t id = group * 4 + i;
        if (id >= vocabulary) continue;
        const float score = (row[id] - highest) / draw.temperature;
        // May have overflowed, where a row's logits may not: the lowest then, as on the host.
        see(ordered_bits(score + gumbel(bits.of[i]) + 0.0f), id, best);
      }
    }
    return best;
  }

  /// The best of all threads, for each.
  template <class Block, class Shared, class Local>
  OUTRIDER_KERNEL void take_best(Block& block, Shared& keys, Shared& ids, Local& best,
                                 Local& out) const {
    block.threads([&](uint32_t t) {
      keys.store(t, best[t].key);
      ids.store(t, best[t].id);
    });
    block.barrier();
    for (uint32_t half = k_threads / 2; half > 0; half /= 2) {
      block.threads([&](uint32_t t) {
        if (t >= half) return;
        Best own = {keys.load(t), ids.load(t)};
        see(keys.load(t + half), ids.load(t + half), own);
        keys.store(t, own.key);
        ids.store(t, own.id);
      });
      block.barrier();
    }
    block.threads([&](uint32_t t) { out[t] = {keys.load(0), ids.load(0)}; });
    block.barrier();
  }
};

}  // namespace outrider::kernels::cuda
