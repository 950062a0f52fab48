#pragma once

#include "kernels/cuda/attention.hpp"

namespace outrider::kernels::cuda {

/// Unsigned integers in the order of floats; NaN is the lowest, as minus infinity.
OUTRIDER_KERNEL uint32_t ordered_bits(float x) {
  const uint32_t bits = x != x ? 0xFF800000u : bits_of(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
OUTRIDER_KERNEL float of_ordered_bits(uint32_t bits) {
  return float_of(bits >> 31 != 0 ? bits & 0x7FFFFFFFu : ~bits);
}

/// Attention in float, for kinds whose numbers do not fit halves. Blocks: x an item, y a kv head, z
/// a share of its chunks. Thread t takes position t of a chunk for scores and elements t, t + 128,
/// … for values, for all queries.
///
/// In a chunk: score = FMA chain over d ascending of K and q * scale_log2; weight = 2^(score -
/// maximum); their sum: each of 32 lanes adds its positions (lane + 32 i) ascending, then lanes by
/// pairs 16, 8, 4, 2, 1 apart; values by FMA chain over ascending positions.
template <uint32_t QN>
struct FloatAttention : Attention {
  static constexpr uint32_t k_threads = k_chunk;

  explicit FloatAttention(const Attention& call) : Attention(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const AttentionItem& item = items[block.x()];
    if (item.queries == 0) return;
    Work work;
    work.item = &item;
    work.kv_head = block.y();
    work.first_chunk = first_chunk_of_part(item, block.z());
    work.end_chunk = first_chunk_of_part(item, block.z() + 1);
    if (work.first_chunk == work.end_chunk) return;
    Memory<Block> memory(block, *this);
    load_queries(block, work, memory);

    const uint32_t of_chunk = (k_chunk_tiles + stages.tiles - 1) / stages.tiles;
    const uint32_t jobs = (work.end_chunk - work.first_chunk) * 2 * of_chunk;
    const uint32_t ahead = stages.count - 1;
    block.threads([&](uint32_t t) {
      if (ahead > 0) start_job(block, t, work, of_chunk, 0, memory);
    });
    for (uint32_t job = 0; job < jobs; ++job) {
      block.threads([&](uint32_t t) {
        if (job + ahead < jobs) start_job(block, t, work, of_chunk, job + ahead, memory);
        if (ahead > 0 && job + ahead < jobs) {
          block.template wait_for_copies<1>();
        } else {
          block.template wait_for_copies<0>();
        }
      });
      block.barrier();
      const uint32_t chunk = work.first_chunk + job / (2 * of_chunk);
      const uint32_t stage = job % of_chunk;
      const bool is_values = job / of_chunk % 2 == 1;
      block.threads([&](uint32_t t) {
        if (is_values) {
          add_values(t, work, chunk, stage, job % stages.count, memory);
        } else {
          find_scores(t, work, chunk, stage, job % stages.count, memory);
        }
      });
      block.barrier();
      if (stage + 1 < of_chunk) continue;
      if (is_values) {
        end_chunk_of(block, work, chunk, memory);
      } else {
        weigh(block, work, chunk, memory);
      }
    }
    if (partial == nullptr) write_out(block, work, memory);
  }

 private:
  struct Work {
    const AttentionItem* item;
    uint32_t kv_head, first_chunk, end_chunk;
  };
  struct QueryFloats {
    float of[QN];
  };

  template <class Block>
  struct Memory {
    OUTRIDER_KERNEL Memory(Block& block, const FloatAttention& call)
        : queries(block.template shared<float>(call.head_dim * QN)),
          weights(block.template shared<float>(k_chunk * QN)),
          of_chunk(block.template shared<float>(call.head_dim * QN)),
          values(block.template shared<float>(call.head_dim * QN)),
          chunk_state(block.template shared<float>(2 * QN)),
          state(block.template shared<float>(2 * QN)),
          tiles(block.template shared<std::byte>(call.stages.count * call.stages.bytes)) {}

    typename Block::template Shared<float> queries;      ///< [head_dim][QN], scaled
    typename Block::template Shared<float> weights;      ///< [128][QN], first the scores
    typename Block::template Shared<float> of_chunk;     ///< [head_dim][QN] values of this chunk
    typename Block::template Shared<float> values;       ///< [head_dim][QN] of all before
    typename Block::template Shared<float> chunk_state;  ///< [QN] maxima, then [QN] sums
    typename Block::template Shared<float> state;        ///< likewise, of all before
    typename Block::template Shared<std::byte> tiles;    ///< of all stages
  };

  OUTRIDER_KERNEL bool sees(const Work& work, uint32_t i, uint32_t of_position) const {
    if (i >= work.item->queries) return false;
    const uint32_t own = position(*work.item, i);
    return of_position <= own && of_position >= begin(own);
  }

  template <class Block, class M>
  OUTRIDER_KERNEL void load_queries(Block& block, const Work& work, M& memory) const {
    block.threads([&](uint32_t t) {
      for (uint32_t i = 0; i < QN; ++i) {
        const bool there = i < work.item->queries;
        const float* const from = q + (there ? vector_at(*work.item, work.kv_head, i) : 0);
        for (uint32_t d = t; d < head_dim; d += k_threads) {
          memory.queries.store(d * QN + i, there ? from[d] * scale_log2 : 0.0f);
          memory.values.store(d * QN + i, 0.0f);
        }
      }
      if (t >= QN) return;
      memory.state.store(t, float_of(0xFF800000u));
      memory.state.store(QN + t, 0.0f);
    });
    block.barrier();
  }

  /// The tiles of a stage that any query sees.
  struct TileRange {
    uint32_t begin, end;
  };
  OUTRIDER_KERNEL TileRange tiles_of(const Work& work, uint32_t chunk, uint32_t stage) const {
    const uint32_t first = chunk * k_chunk_tiles + stage * stages.tiles;
    const uint32_t last = least(first + stages.tiles, (chunk + 1) * k_chunk_tiles);
    const uint32_t seen = begin(position(*work.item, 0)) / 16;
    const uint32_t end = position(*work.item, work.item->queries - 1) / 16 + 1;
    return {greatest(first, seen), least(last, end)};
  }

  /// Copies of job's tiles into their stage.
  template <class Block, class M>
  OUTRIDER_KERNEL void start_job(Block& block, uint32_t t, const Work& work, uint32_t of_chunk,
                                 uint32_t job, M& memory) const {
    const uint32_t chunk = work.first_chunk + job / (2 * of_chunk);
    const uint32_t stage = job % of_chunk;
    const bool is_values = job / of_chunk % 2 == 1;
    const TileRange range = tiles_of(work, chunk, stage);
    const uint32_t pieces = pool.of[is_values ? 1 : 0].tile_bytes / 16;
    for (uint32_t tile = range.begin; tile < range.end; ++tile) {
      const std::byte* const from =
          pool.tile(tables + work.item->table_at, tile, work.kv_head, is_values);
      const uint32_t to = tile_at(tile, stage, job % stages.count, is_values);
      for (uint32_t i = t; i < pieces; i += k_threads) {
        memory.tiles.copy_async(to + i * 16, from + i * 16);
      }
    }
    block.end_copies();
  }

  /// Bytes from the start of all stages' memory.
  OUTRIDER_KERNEL uint32_t tile_at(uint32_t tile, uint32_t stage, uint32_t turn,
                                   bool is_values) const {
    const uint32_t place = tile % k_chunk_tiles - stage * stages.tiles;
    return turn * stages.bytes + place * stages.tile_pitch[is_values ? 1 : 0];
  }

  template <class M>
  OUTRIDER_KERNEL QueryFloats load_all(const M& from, uint32_t at) const {
    QueryFloats numbers;
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < QN; i += 4) {
      const Words4 four = from.template load_as_type<Words4>((at * QN + i) * 4);
      OUTRIDER_UNROLL
      for (uint32_t j = 0; j < 4; ++j) numbers.of[i + j] = float_of(four.w[j]);
    }
    return numbers;
  }

  /// The scores of position t of the chunk.
  template <class M>
  OUTRIDER_KERNEL void find_scores(uint32_t t, const Work& work, uint32_t chunk, uint32_t stage,
                                   uint32_t turn, M& memory) const {
    const uint32_t tile = chunk * k_chunk_tiles + t / 16;
    const TileRange range = tiles_of(work, chunk, stage);
    if (tile < range.begin || tile >= range.end) return;
    const KvTiles& keys = pool.of[0];
    const uint32_t at = tile_at(tile, stage, turn, false);
    QueryFloats scores = {};
    with_kv_kind(keys.kind, [&]<KvKind kind>() {
      const auto add = [&](uint32_t unit, uint32_t k) {
        const float key =
            unit_number<kind>(keys, memory.tiles, at + unit * keys.unit_bytes, k, t % 16,
                              at + keys.scales_at + unit / 2 * 32 + t % 16 * 2);
        const QueryFloats queries = load_all(memory.queries, unit * 16 + k);
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < QN; ++i) scores.of[i] = fused(key, queries.of[i], scores.of[i]);
      };
      for (uint32_t unit = 0; unit < head_dim / 16; ++unit) {
        OUTRIDER_UNROLL
        for (uint32_t k = 0; k < 16; ++k) add(unit, k);
      }
      for (uint32_t k = 0; k < head_dim % 16; ++k) add(head_dim / 16, k);
    });
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < QN; ++i) memory.weights.store(t * QN + i, scores.of[i]);
  }

  /// Scores become weights; a warp takes a query at a time. Maximum and sum go to chunk_state.
  template <class Block, class M>
  OUTRIDER_KERNEL void weigh(Block& block, const Work& work, uint32_t chunk, M& memory) const {
    auto highest = block.template local<uint32_t>();
    auto sum = block.template local<float>();
    for (uint32_t first = 0; first < QN; first += k_threads / 32) {
      const auto seen = [&](uint32_t t, uint32_t place) {
        return sees(work, first + t / 32, chunk * k_chunk + place);
      };
      block.threads([&](uint32_t t) {
        highest[t] = 0;
        for (uint32_t place = t % 32; place < k_chunk; place += 32) {
          if (!seen(t, place)) continue;
          const float score = memory.weights.load(place * QN + first + t / 32);
          highest[t] = greatest(highest[t], ordered_bits(score));
        }
      });
      block.warp_max(highest);
      block.threads([&](uint32_t t) {
        const uint32_t i = first + t / 32;
        const float of_chunk = of_ordered_bits(highest[t]);
        sum[t] = 0;
        for (uint32_t place = t % 32; place < k_chunk; place += 32) {
          if (!seen(t, place)) continue;
          const float score = memory.weights.load(place * QN + i);
          const float weight = exp2_of_negative(score - of_chunk);
          memory.weights.store(place * QN + i, weight);
          sum[t] += weight;
        }
      });
      block.warp_sum(sum);
      block.threads([&](uint32_t t) {
        if (t % 32 != 0) return;
        memory.chunk_state.store(first + t / 32, of_ordered_bits(highest[t]));
        memory.chunk_state.store(QN + first + t / 32, sum[t]);
      });
    }
    block.barrier();
  }

  /// Adds the stage's positions to the chunk's values of this thread's elements.
  template <class M>
  OUTRIDER_KERNEL void add_values(uint32_t t, const Work& work, uint32_t chunk, uint32_t stage,
                                  uint32_t turn, M& memory) const {
    const KvTiles& tiles = pool.of[1];
    const TileRange range = tiles_of(work, chunk, stage);
    for (uint32_t d = t; d < head_dim; d += k_threads) {
      QueryFloats sums = {};
      if (stage > 0) sums = load_all(memory.of_chunk, d);
      with_kv_kind(tiles.kind, [&]<KvKind kind>() {
        for (uint32_t tile = range.begin; tile < range.end; ++tile) {
          add_tile<kind>(work, tile, tile_at(tile, stage, turn, true), d, memory, sums);
        }
      });
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < QN; ++i) memory.of_chunk.store(d * QN + i, sums.of[i]);
    }
  }

  template <KvKind kind, class M>
  OUTRIDER_KERNEL void add_tile(const Work& work, uint32_t tile, uint32_t at, uint32_t d, M& memory,
                                QueryFloats& sums) const {
    const KvTiles& tiles = pool.of[1];
    const uint32_t first = tile * 16;
    // Most tiles are seen whole by all queries: rows and windows only grow.
    const uint32_t last_begin = begin(position(*work.item, work.item->queries - 1));
    const auto add = [&](uint32_t k, const auto& counts) {
      const float value = unit_number<kind>(tiles, memory.tiles, at + d / 16 * tiles.unit_bytes, k,
                                            d % 16, at + tiles.scales_at + d / 32 * 32 + k * 2);
      const QueryFloats weights = load_all(memory.weights, first % k_chunk + k);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < QN; ++i) {
        if (counts(i)) sums.of[i] = fused(weights.of[i], value, sums.of[i]);
      }
    };
    if (first >= last_begin && first + 15 <= position(*work.item, 0)) {
      OUTRIDER_UNROLL
      for (uint32_t k = 0; k < 16; ++k) add(k, [](uint32_t) { return true; });
      return;
    }
    for (uint32_t k = 0; k < 16; ++k) {
      add(k, [&](uint32_t i) { return sees(work, i, first + k); });
    }
  }

  /// The chunk joins those before it, or goes to where the merge finds it.
  template <class Block, class M>
  OUTRIDER_KERNEL void end_chunk_of(Block& block, const Work& work, uint32_t chunk,
                                    M& memory) const {
    const AttentionItem& item = *work.item;
    block.threads([&](uint32_t t) {
      for (uint32_t i = 0; i < item.queries; ++i) {
        if (!sees_chunk(position(item, i), chunk)) continue;
        if (partial != nullptr) {
          float* const to = partial_of(block.x(), work.kv_head, chunk - first_chunk(item), i, QN);
          for (uint32_t d = t; d < head_dim; d += k_threads) {
            to[2 + d] = memory.of_chunk.load(d * QN + i);
          }
          if (t < 2) to[t] = memory.chunk_state.load(t * QN + i);
          continue;
        }
        const MergeFactors factors =
            merge_factors(memory.state.load(i), memory.chunk_state.load(i));
        for (uint32_t d = t; d < head_dim; d += k_threads) {
          memory.values.store(d * QN + i, merged(memory.values.load(d * QN + i),
                                                 memory.of_chunk.load(d * QN + i), factors));
        }
      }
    });
    block.barrier();
    if (partial != nullptr) return;
    block.threads([&](uint32_t t) {
      if (t >= item.queries || !sees_chunk(position(item, t), chunk)) return;
      const MergeFactors factors = merge_factors(memory.state.load(t), memory.chunk_state.load(t));
      memory.state.store(
          QN + t, merged(memory.state.load(QN + t), memory.chunk_state.load(QN + t), factors));
      memory.state.store(t, factors.highest);
    });
    block.barrier();
  }

  template <class Block, class M>
  OUTRIDER_KERNEL void write_out(Block& block, const Work& work, M& memory) const {
    block.threads([&](uint32_t t) {
      for (uint32_t i = 0; i < work.item->queries; ++i) {
        float* const to = out + vector_at(*work.item, work.kv_head, i);
        const float sum = memory.state.load(QN + i);
        for (uint32_t d = t; d < head_dim; d += k_threads) {
          to[d] = memory.values.load(d * QN + i) / sum;
        }
      }
    });
  }
};

}  // namespace outrider::kernels::cuda
