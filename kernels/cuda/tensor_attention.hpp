#pragma once

#include "kernels/cuda/attention_chunks.hpp"

namespace outrider::kernels::cuda {

/// Attention by mma, for kinds that fit halves and heads of up to 256 elements. Blocks: x an item,
/// y a kv head, z a share of its chunks. A block has QT tiles of 16 queries, of which W = 4 / QT
/// warps each take one: for scores a warp takes each W-th tile of 16 positions, for values each
/// W-th unit of 16 elements. Rows of a tile that have no query see what the last one sees.
///
/// In a chunk: a query times scale_log2, times the power of two that brings its largest magnitude
/// to [2^14, 2^15), is rounded to half precision; score = mma's sum over units of 16 elements
/// ascending, times the power's inverse; weight = 2^(score - maximum) rounded to half precision;
/// their sum (by a column of ones) and the values: mma over tiles of 16 positions ascending.
template <uint32_t QT>
struct TensorAttention : ChunkedAttention {
  static constexpr uint32_t k_blocks = 3;
  static constexpr uint32_t k_queries = 16 * QT;

  explicit TensorAttention(const Attention& call) : ChunkedAttention(call) {}

  /// `spread`: values of chunks go to `partial`.
  static size_t shared_bytes(const Attention& call, bool spread) {
    const size_t units = (call.head_dim + 15) / 16;
    const size_t tiles = k_chunk_tiles * (call.stages.tile_pitch[0] + call.stages.tile_pitch[1]);
    const size_t exchanged = W > 1 ? (k_weight_words + k_queries * W / 4) * sizeof(Words4) : 0;
    const size_t kept = QT > 1 && !spread ? QT * units * 64 * sizeof(Words4) : 0;
    return tiles + QT * units * 512 + k_queries * sizeof(float) + exchanged + kept + 2 * 16;
  }

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const AttentionItem& item = items[block.x()];
    if (item.queries == 0) return;
    const Work work = {&item, block.x(), block.y()};
    const uint32_t first = first_chunk_of_part(item, block.z());
    const uint32_t end = first_chunk_of_part(item, block.z() + 1);
    if (first == end) return;
    Memory<Block> memory(block, *this);
    typename Block::template Copies<2, 2> copies(block);
    Chunk chunk = chunk_of(work, first);
    const BlockIds first_ids = ids_of(work, chunk);
    start_copies(work, chunk, first_ids, 0, memory.keys, copies);
    start_copies(work, chunk, first_ids, 1, memory.values, copies);
    auto lanes = block.template local<Lane>();
    load_queries(block, work, k_queries, memory.queries, memory.inverse);
    block.threads([&](uint32_t t) { start_lane(t, work, memory, lanes[t]); });

    for (uint32_t turn = 0; first + turn < end; ++turn) {
      const bool goes_on = first + turn + 1 < end;
      const Chunk next = goes_on ? chunk_of(work, first + turn + 1) : chunk;
      const BlockIds next_ids = ids_of(work, next);
      copies.wait(0, turn);
      block.barrier();
      find_scores(block, chunk, memory, lanes);
      block.barrier();  // nobody reads the keys; maxima are there
      if (goes_on) {
        start_copies(work, next, next_ids, 0, memory.keys, copies);
      } else {
        copies.close(0);
      }
      block.threads([&](uint32_t t) { weigh(t, chunk, memory, lanes[t]); });
      copies.wait(1, turn);
      block.barrier();
      end_chunk_of(block, work, chunk, memory, lanes);
      if (!goes_on) break;
      block.barrier();  // nobody reads the values, nor weights
      // Read again: they would take registers.
      start_copies(work, next, ids_of(work, next), 1, memory.values, copies);
      chunk = next;
    }
    if (partial == nullptr) {
      block.threads([&](uint32_t t) { write_out(t, work, memory, lanes[t]); });
    }
  }

 private:
  static constexpr uint32_t W = 4 / QT;
  static constexpr uint32_t k_own_tiles = k_chunk_tiles / W;  ///< of positions, of a warp
  static constexpr uint32_t k_pass_units = QT == 1 ? 1 : 2;   ///< of values at a time
  static constexpr uint32_t k_passes_max = k_head_dim_max / 16 / W / k_pass_units;
  static constexpr uint32_t k_weight_words = QT * k_chunk_tiles * 32;
  static constexpr uint32_t k_ones = 0x3C003C00u;

  /// What a lane has of its rows, h = 0: row lane / 4 of its warp's tile, h = 1: 8 behind it. mma's
  /// results c are rows c / 2 and columns 2 (lane % 4) + c % 2: of scores positions, of values
  /// elements 4 (lane % 4) + 2 (c % 2) + n of a unit, where n is the matrix (kv_fragments.hpp).
  struct Lane {
    uint32_t position[2];
    float inverse[2];
    SoftmaxState state[2];   ///< of all chunks before
    SoftmaxState latest[2];  ///< of this chunk
    MergeFactors factors[2];
    bool sees[2];
    float scores[k_own_tiles][2][4];
    uint32_t weights[k_chunk_tiles][4];            ///< of this chunk's tiles, as mma takes them
    float kept[QT == 1 ? k_passes_max : 1][2][4];  ///< values of all before; else in shared memory
  };
  /// Scores and values on the way.
  struct KeyPart {
    Words4 q;
    uint32_t b[2][2];
  };
  struct ValuePart {
    uint32_t b[k_pass_units][2][2];
    float sums[k_pass_units][2][4];
  };

  template <class Block>
  struct Memory {
    OUTRIDER_KERNEL Memory(Block& block, const TensorAttention& call)
        : keys(block.template shared<std::byte>(k_chunk_tiles * call.stages.tile_pitch[0])),
          values(block.template shared<std::byte>(k_chunk_tiles * call.stages.tile_pitch[1])),
          queries(block.template shared<uint16_t>(QT * call.units() * 256)),
          inverse(block.template shared<float>(k_queries)),
          weights(block.template shared<Words4>(W > 1 ? k_weight_words : 0)),
          maxima(block.template shared<float>(W > 1 ? k_queries * W : 0)),
          kept(block.template shared<Words4>(
              QT > 1 && call.partial == nullptr ? QT * call.units() * 64 : 0)) {}

    typename Block::template Shared<std::byte> keys, values;  ///< of one chunk each
    typename Block::template Shared<uint16_t> queries;        ///< [QT][units][32 lanes][8]
    typename Block::template Shared<float> inverse;           ///< [queries]
    typename Block::template Shared<Words4> weights;          ///< [QT][tiles of a chunk][32 lanes]
    typename Block::template Shared<float> maxima;            ///< [queries][W]
    typename Block::template Shared<Words4> kept;             ///< [QT][units][2][32 lanes]
  };

  OUTRIDER_KERNEL static uint32_t tile_of(uint32_t t) { return t / 32 / W; }
  OUTRIDER_KERNEL static uint32_t part_of(uint32_t t) { return t / 32 % W; }
  OUTRIDER_KERNEL static uint32_t row_of(uint32_t t, uint32_t h) {
    return tile_of(t) * 16 + t % 32 / 4 + 8 * h;
  }
  template <class M>
  OUTRIDER_KERNEL void start_lane(uint32_t t, const Work& work, M& memory, Lane& lane) const {
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t row = row_of(t, h);
      lane.position[h] = position(*work.item, least(row, work.item->queries - 1));
      lane.inverse[h] = memory.inverse.load(row);
      lane.state[h] = {float_of(0xFF800000u), 0};
    }
    if constexpr (QT == 1) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_passes_max * 8; ++i) lane.kept[i / 8][i / 4 % 2][i % 4] = 0;
    } else {
      if (partial != nullptr) return;
      for (uint32_t unit = part_of(t); unit < units(); unit += W) {
        for (uint32_t n = 0; n < 2; ++n) memory.kept.store(kept_at(t, unit, n), Words4{});
      }
    }
  }
  OUTRIDER_KERNEL uint32_t kept_at(uint32_t t, uint32_t unit, uint32_t n) const {
    return ((tile_of(t) * units() + unit) * 2 + n) * 32 + t % 32;
  }

  OUTRIDER_KERNEL bool sees(const Lane& lane, uint32_t h, uint32_t of_position) const {
    return of_position <= lane.position[h] && of_position >= begin(lane.position[h]);
  }

  /// Each warp's scores, minus infinity where they do not count, and the maxima of its rows.
  template <class Block, class M, class Lanes>
  OUTRIDER_KERNEL void find_scores(Block& block, const Chunk& chunk, M& memory,
                                   Lanes& lanes) const {
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_own_tiles * 8; ++i) lanes[t].scores[i / 8][i / 4 % 2][i % 4] = 0;
    });
    const KvTiles& tiles = pool.of[0];
    with_half_kind(tiles.kind, [&]<KvKind kind>() {
      auto fragments = block.template local<KeyPart>();
      for (uint32_t unit = 0; unit < units(); ++unit) {
        block.threads([&](uint32_t t) {
          const uint32_t at = (tile_of(t) * units() + unit) * 32 + t % 32;
          fragments[t].q = memory.queries.template load_as_type<Words4>(at * sizeof(Words4));
        });
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_own_tiles; ++i) {
          block.threads([&](uint32_t t) {
            const uint32_t at = chunk.place(i * W + part_of(t)) * stages.tile_pitch[0];
            unit_fragments<kind, false>(tiles, memory.keys, at, unit, t % 32, fragments[t].b);
          });
          OUTRIDER_UNROLL
          for (uint32_t n = 0; n < 2; ++n) {
            block.mma([](uint32_t) { return true; }, [&](uint32_t t) { return fragments[t].q.w; },
                      [&](uint32_t t) { return fragments[t].b[n]; },
                      [&](uint32_t t) { return lanes[t].scores[i][n]; });
          }
        }
      }
    });
    auto highest = block.template local<float>();
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      block.threads([&](uint32_t t) {
        Lane& lane = lanes[t];
        highest[t] = float_of(0xFF800000u);
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_own_tiles * 4; ++i) {
          const uint32_t tile = i / 4, n = i / 2 % 2, c = 2 * h + i % 2;
          const uint32_t at =
              chunk.number * k_chunk + (tile * W + part_of(t)) * 16 + t % 4 * 4 + c % 2 * 2 + n;
          float score = lane.scores[tile][n][c] * lane.inverse[h];
          if (!chunk.whole && !sees(lane, h, at)) score = float_of(0xFF800000u);
          lane.scores[tile][n][c] = score;
          highest[t] = score > highest[t] ? score : highest[t];  // NaN is none
        }
      });
      block.template group_max<4>(highest);
      block.threads([&](uint32_t t) {
        lanes[t].latest[h].highest = highest[t];
        if (W > 1 && t % 4 == 0) {
          memory.maxima.store(row_of(t, h) * W + part_of(t), highest[t]);
        }
      });
    }
  }

  /// Scores become weights, as mma takes them of the kind of values.
  template <class M>
  OUTRIDER_KERNEL void weigh(uint32_t t, const Chunk& chunk, M& memory, Lane& lane) const {
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      float highest = lane.latest[h].highest;
      if constexpr (W > 1) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < W; ++i) {
          const float other = memory.maxima.load(row_of(t, h) * W + i);
          highest = other > highest ? other : highest;
        }
      }
      lane.latest[h].highest = highest;
      lane.sees[h] = sees_chunk(lane.position[h], chunk.number);
    }
    const bool round = !pool.of[1].has_scales;
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_own_tiles; ++i) {
      Words4 weights;
      OUTRIDER_UNROLL
      for (uint32_t w = 0; w < 4; ++w) {
        const uint32_t h = w % 2, c = 2 * h + w / 2;
        float pair[2];
        OUTRIDER_UNROLL
        for (uint32_t n = 0; n < 2; ++n) {
          pair[n] = exp2_of_negative(lane.scores[i][n][c] - lane.latest[h].highest);
        }
        weights.w[w] = finite_as_half2(pair[0], pair[1]);  // or NaN, which stays one
      }
      if (round) {
        go_round(t % 4, weights.w[0], weights.w[2]);
        go_round(t % 4, weights.w[1], weights.w[3]);
      }
      if constexpr (W > 1) {
        const uint32_t tile = tile_of(t) * k_chunk_tiles + i * W + part_of(t);
        memory.weights.store(tile * 32 + t % 32, weights);
      } else {
        OUTRIDER_UNROLL
        for (uint32_t w = 0; w < 4; ++w) lane.weights[i][w] = weights.w[w];
      }
    }
  }

  /// The chunk joins those before it, or goes to where the merge finds it.
  template <class Block, class M, class Lanes>
  OUTRIDER_KERNEL void end_chunk_of(Block& block, const Work& work, const Chunk& chunk, M& memory,
                                    Lanes& lanes) const {
    struct Sums {
      uint32_t ones[2];
      float c[4];
    };
    auto sums = block.template local<Sums>();
    block.threads([&](uint32_t t) {
      sums[t] = {{k_ones, k_ones}, {0, 0, 0, 0}};
      if constexpr (W > 1) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_chunk_tiles; ++i) {
          const Words4 weights =
              memory.weights.load((tile_of(t) * k_chunk_tiles + i) * 32 + t % 32);
          OUTRIDER_UNROLL
          for (uint32_t w = 0; w < 4; ++w) lanes[t].weights[i][w] = weights.w[w];
        }
      }
    });
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_chunk_tiles; ++i) {
      block.mma([](uint32_t) { return true; }, [&](uint32_t t) { return lanes[t].weights[i]; },
                [&](uint32_t t) { return sums[t].ones; }, [&](uint32_t t) { return sums[t].c; });
    }
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        lanes[t].latest[h].sum = sums[t].c[2 * h];
        lanes[t].factors[h] = merge_factors(lanes[t].state[h].highest, lanes[t].latest[h].highest);
      }
    });
    with_half_kind(pool.of[1].kind, [&]<KvKind kind>() {
      if (chunk.whole) {
        add_values<kind, true>(block, work, chunk, memory, lanes);
      } else {
        add_values<kind, false>(block, work, chunk, memory, lanes);
      }
    });
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        if (!lanes[t].sees[h]) continue;
        SoftmaxState& state = lanes[t].state[h];
        const SoftmaxState& latest = lanes[t].latest[h];
        if (partial == nullptr) {
          const MergeFactors& factors = lanes[t].factors[h];
          state = {factors.highest, merged(state.sum, latest.sum, factors)};
        } else if (t % 4 == 0 && part_of(t) == 0 && row_of(t, h) < work.item->queries) {
          float* const to = chunk_in_partial(work, chunk, row_of(t, h));
          to[0] = latest.highest;
          to[1] = latest.sum;
        }
      }
    });
  }
  OUTRIDER_KERNEL float* chunk_in_partial(const Work& work, const Chunk& chunk,
                                          uint32_t row) const {
    return partial_of(work.item_at, work.kv_head, chunk.number - first_chunk(*work.item), row,
                      queries_max);
  }

  /// In a chunk that is not whole, positions may hold what is no number where a query does not
  /// look: mma gets zeros in place of such, and what queries see of them is added by hand.
  template <KvKind kind, bool whole, class Block, class M, class Lanes>
  OUTRIDER_KERNEL void add_values(Block& block, const Work& work, const Chunk& chunk, M& memory,
                                  Lanes& lanes) const {
    auto fragments = block.template local<ValuePart>();
    auto odd = block.template local<uint32_t>();
    for (uint32_t pass = 0; pass * (k_pass_units * W) < units(); ++pass) {
      block.threads([&](uint32_t t) {
        odd[t] = 0;
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_pass_units * 8; ++i)
          fragments[t].sums[i / 8][i / 4 % 2][i % 4] = 0;
      });
      OUTRIDER_UNROLL
      for (uint32_t tile = 0; tile < k_chunk_tiles; ++tile) {
        if (!whole && !chunk.has(tile)) continue;
        block.threads([&](uint32_t t) {
          OUTRIDER_UNROLL
          for (uint32_t i = 0; i < k_pass_units; ++i) {
            const uint32_t unit = least(unit_of(t, pass, i), units() - 1);
            unit_fragments<kind, true>(pool.of[1], memory.values, tile * stages.tile_pitch[1], unit,
                                       t % 32, fragments[t].b[i]);
            if constexpr (!whole) {
              OUTRIDER_UNROLL
              for (uint32_t j = 0; j < 4; ++j) {
                uint32_t& pair = fragments[t].b[i][j / 2][j % 2];
                odd[t] |= odd_halves(pair);
                pair = finite_halves(pair);
              }
            }
          }
        });
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_pass_units * 2; ++i) {
          block.mma([](uint32_t) { return true; },
                    [&](uint32_t t) { return lanes[t].weights[tile]; },
                    [&](uint32_t t) { return fragments[t].b[i / 2][i % 2]; },
                    [&](uint32_t t) { return fragments[t].sums[i / 2][i % 2]; });
        }
      }
      if constexpr (!whole) {
        if (block.any(odd)) add_odd_values<kind>(block, chunk, pass, memory, lanes, fragments);
      }
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_pass_units; ++i) {
          const uint32_t unit = unit_of(t, pass, i);
          if (unit >= units()) continue;
          if (partial != nullptr) {
            put_partial(t, work, chunk, unit, lanes[t], fragments[t].sums[i]);
          } else {
            join(t, pass, unit, memory, lanes[t], fragments[t].sums[i]);
          }
        }
      });
    }
  }
  OUTRIDER_KERNEL static uint32_t unit_of(uint32_t t, uint32_t pass, uint32_t i) {
    return (pass * k_pass_units + i) * W + part_of(t);
  }
  /// Of result c of a unit's matrix n.
  OUTRIDER_KERNEL static uint32_t element_of(uint32_t t, uint32_t unit, uint32_t n, uint32_t c) {
    return unit * 16 + t % 4 * 4 + c % 2 * 2 + n;
  }

  /// Infinities and what is no number of a pass's values, times their weights.
  template <KvKind kind, class Block, class M, class Lanes, class Parts>
  OUTRIDER_KERNEL void add_odd_values(Block& block, const Chunk& chunk, uint32_t pass, M& memory,
                                      Lanes& lanes, Parts& fragments) const {
    auto weights = block.template local<Words4>();
    auto taken = block.template local<uint32_t>();
    const KvTiles& tiles = pool.of[1];
    for (uint32_t at = 0; at < k_chunk; ++at) {
      if (!chunk.has(at / 16)) continue;
      const uint32_t k = at % 16, slot = slot_of_k(stands_alone<kind>, k);
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_chunk_tiles * 4; ++i) {
          if (i / 4 == at / 16) weights[t].w[i % 4] = lanes[t].weights[i / 4][i % 4];
        }
      });
      OUTRIDER_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        block.threads(
            [&](uint32_t t) { taken[t] = slot < 2 ? weights[t].w[h] : weights[t].w[2 + h]; });
        block.take_from_lane(taken, [&](uint32_t t) { return t % 32 / 4 * 4 + k / 4; });
        block.threads([&](uint32_t t) {
          if (!sees(lanes[t], h, chunk.number * k_chunk + at)) return;
          const float weight = half_as_float(static_cast<uint16_t>(taken[t] >> (slot % 2 * 16)));
          OUTRIDER_UNROLL
          for (uint32_t i = 0; i < k_pass_units * 4; ++i) {
            const uint32_t unit = least(unit_of(t, pass, i / 4), units() - 1);
            const uint32_t n = i % 2, c = 2 * h + i / 2 % 2;
            const uint32_t d = element_of(t, unit, n, c);
            const uint32_t tile = at / 16 * stages.tile_pitch[1];
            const uint16_t value = float_as_half(
                unit_number<kind>(tiles, memory.values, tile + unit * tiles.unit_bytes, k, d % 16,
                                  tile + tiles.scales_at + d / 32 * 32 + k * 2));
            float& sum = fragments[t].sums[i / 4][n][c];
            if (odd_halves(value) != 0) sum = fused(weight, half_as_float(value), sum);
          }
        });
      }
    }
  }

  OUTRIDER_KERNEL void put_partial(uint32_t t, const Work& work, const Chunk& chunk, uint32_t unit,
                                   const Lane& lane, const float (&sums)[2][4]) const {
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      if (!lane.sees[h] || row_of(t, h) >= work.item->queries) continue;
      float* const to = chunk_in_partial(work, chunk, row_of(t, h)) + 2;
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t n = i % 2, c = 2 * h + i / 2, d = element_of(t, unit, n, c);
        if (d < head_dim) to[d] = sums[n][c];
      }
    }
  }

  template <class M>
  OUTRIDER_KERNEL void join(uint32_t t, uint32_t pass, uint32_t unit, M& memory, Lane& lane,
                            const float (&sums)[2][4]) const {
    OUTRIDER_UNROLL
    for (uint32_t n = 0; n < 2; ++n) {
      if constexpr (QT == 1) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_passes_max * 4; ++i) {
          float& kept = lane.kept[i / 4][n][i % 4];
          if (i / 4 != pass || !lane.sees[i % 4 / 2]) continue;
          kept = merged(kept, sums[n][i % 4], lane.factors[i % 4 / 2]);
        }
      } else {
        Words4 kept = memory.kept.load(kept_at(t, unit, n));
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) {
          if (!lane.sees[c / 2]) continue;
          kept.w[c] = bits_of(merged(float_of(kept.w[c]), sums[n][c], lane.factors[c / 2]));
        }
        memory.kept.store(kept_at(t, unit, n), kept);
      }
    }
  }

  template <class M>
  OUTRIDER_KERNEL void write_out(uint32_t t, const Work& work, M& memory, const Lane& lane) const {
    const auto write = [&](uint32_t unit, uint32_t n, uint32_t c, float value) {
      const uint32_t row = row_of(t, c / 2), d = element_of(t, unit, n, c);
      if (row >= work.item->queries || d >= head_dim) return;
      out[vector_at(*work.item, work.kv_head, row) + d] = value / lane.state[c / 2].sum;
    };
    if constexpr (QT == 1) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_passes_max * 8; ++i) {
        write(i / 8 * W + part_of(t), i / 4 % 2, i % 4, lane.kept[i / 8][i / 4 % 2][i % 4]);
      }
    } else {
      for (uint32_t unit = part_of(t); unit < units(); unit += W) {
        OUTRIDER_UNROLL
        for (uint32_t n = 0; n < 2; ++n) {
          const Words4 kept = memory.kept.load(kept_at(t, unit, n));
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < 4; ++c) write(unit, n, c, float_of(kept.w[c]));
        }
      }
    }
  }
};

}  // namespace outrider::kernels::cuda
