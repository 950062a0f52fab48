#pragma once

#include "kernels/cpu/attention_codes.inl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/kv_units.inl.hpp"
#include "kernels/cpu/tile.inl.hpp"
#include "kernels/cpu/vector_math.inl.hpp"

/// Attention of some queries of one kv head over one chunk of positions.
namespace outrider::kernels::OUTRIDER_ISA {

constexpr float k_lowest = -__builtin_inff();
/// Room for the tiles of 16 positions whose keys or values are converted to float at a time.
constexpr size_t k_strip_floats = 4 * 16 * 256;
static_assert(k_strip_floats >= 16 * k_head_dim_max);
/// Up to four tiles.
OUTRIDER_INLINE size_t strip_tiles_max(size_t head_dim) {
  return min_of(4, k_strip_floats / (16 * whole_lanes(head_dim)));
}

/// Softmax of one chunk, for each query: scores become weights relative to the chunk's maximum.
struct ChunkResult {
  float max[k_queries_max];
  float sum[k_queries_max];
  alignas(64) float values[k_query_floats_max];  ///< [query][whole_lanes(head_dim)]
};

/// Work space of one item. Queries are [rows, heads] of the item.
struct AttentionScratch {
  alignas(64) float q[k_query_floats_max];
  alignas(64) float scores[k_queries_max * k_chunk_positions];
  alignas(64) float strip[k_strip_floats];
  CodeScratch codes;
};

/// The tiles of 16 positions that one item reads in one chunk; `first` is the first one's position.
struct ChunkTiles {
  const std::byte* keys[k_chunk_positions / 16];
  const std::byte* values[k_chunk_positions / 16];
  size_t count = 0;
  size_t first = 0;
};

static ChunkTiles chunk_tiles(const KvLayer& kv, const AttentionUnit& unit, size_t chunk) {
  ChunkTiles tiles;
  const size_t base = chunk * k_chunk_positions;
  const size_t end = min_of(base + k_chunk_positions, unit.first_position + unit.rows);
  const size_t start = window_start(unit.window, unit.first_position) / 16 * 16;
  tiles.first = start > base ? start : base;
  tiles.count = (end - tiles.first + 15) / 16;
  for (size_t i = 0; i < tiles.count; ++i) {
    const size_t tile = tiles.first / 16 + i;
    const auto block = static_cast<size_t>(unit.block_table[tile / kv.block_tiles]);
    const std::byte* head = kv.pool + block * kv.block_bytes + unit.kv_head * kv.head_bytes;
    tiles.keys[i] = head + tile % kv.block_tiles * kv.k_tile_bytes;
    tiles.values[i] = head + kv.v_at + tile % kv.block_tiles * kv.v_tile_bytes;
  }
  return tiles;
}

/// Whether so many queries read keys or values of a kind without scales as they are stored; others
/// share one conversion.
OUTRIDER_INLINE bool reads_directly(KvKind kind, size_t queries) {
  return queries <= (kind == KvKind::fp8 ? min_of(k_direct_queries, 8) : k_direct_queries);
}

template <KvKind kind>
constexpr size_t k_vector_bytes = kv_kind_info(kind).unit_bytes() / 16;

/// Keys of up to four tiles as they are stored, one panel a tile. What lies at `ahead` is wanted
/// soon; 16 lanes of it are fetched for each vector that is used.
template <KvKind kind>
struct StoredKeys {
  const std::byte* panel[4];
  const std::byte* ahead[4];

  [[gnu::always_inline]] Vec weight(size_t p, size_t k) const {
    if (k % (64 / k_vector_bytes<kind>) == 0) {
      __builtin_prefetch(ahead[p] + k * k_vector_bytes<kind>, 0, 2);
    }
    return load_number<kind>(panel[p] + k * k_vector_bytes<kind>);
  }
  [[gnu::always_inline]] StoredKeys from_panel(size_t first) const {
    StoredKeys rest = *this;
    for (size_t p = first; p < 4; ++p) {
      rest.panel[p - first] = panel[p];
      rest.ahead[p - first] = ahead[p];
    }
    return rest;
  }
};

/// Values of all tiles of a chunk as they are stored, k over their positions; a panel is a unit.
/// Fetches `ahead` likewise.
template <KvKind kind>
struct StoredValues {
  const std::byte* const* tiles;
  const std::byte* const* ahead;  ///< for each tile
  size_t unit;                    ///< of panel 0

  [[gnu::always_inline]] Vec weight(size_t p, size_t k) const {
    const size_t place = ((unit + p) * 16 + k % 16) * k_vector_bytes<kind>;
    if (k % (64 / k_vector_bytes<kind>) == 0) __builtin_prefetch(ahead[k / 16] + place, 0, 2);
    return load_number<kind>(tiles[k / 16] + place);
  }
  [[gnu::always_inline]] StoredValues from_panel(size_t p) const {
    return {tiles, ahead, unit + p};
  }
};

/// What some queries do with one chunk. The next chunk's keys are fetched on the way.
struct ChunkWork {
  size_t head_dim;
  size_t queries;
  const ChunkTiles& tiles;
  const ChunkTiles& next;
  const float* q;  ///< [queries, head_dim]
  float* scores;   ///< [queries, k_chunk_positions]
  float* values;   ///< [queries, whole_lanes(head_dim)]
  float* strip;
  /// [queries] positions, counted from the first tile's, that each attends to: from … valid - 1.
  const size_t* from;
  const size_t* valid;
  const int16_t* q_codes;  ///< [queries, whole_lanes(head_dim)]
  const float* q_scale;
  CodeScratch& codes;

  /// What to fetch while tile i's values are read.
  [[gnu::always_inline]] const std::byte* ahead_of_values(size_t i) const {
    return i < next.count ? next.keys[i] : tiles.values[i];
  }
};

/// Scores of the keys of tile t and those behind it.
template <class Weights>
OUTRIDER_INLINE Tile<Weights> score_tile(const ChunkWork& w, const Weights& keys, size_t t) {
  return {.weights = keys,
          .x = w.q,
          .x_stride = w.head_dim,
          .k = w.head_dim,
          .acc = w.scores + 16 * t,
          .acc_stride = k_chunk_positions,
          .from_zero = true};
}

/// Adds the values of `tiles` tiles from t on.
template <class Weights>
OUTRIDER_INLINE Tile<Weights> value_tile(const ChunkWork& w, const Weights& values, size_t t,
                                         size_t tiles) {
  return {.weights = values,
          .x = w.scores + 16 * t,
          .x_stride = k_chunk_positions,
          .k = 16 * tiles,
          .acc = w.values,
          .acc_stride = whole_lanes(w.head_dim),
          .from_zero = t == 0};
}

template <KvKind kind>
static void score_stored(const ChunkWork& w) {
  for (size_t t = 0; t < w.tiles.count; t += 4) {
    const size_t count = min_of(4, w.tiles.count - t);
    StoredKeys<kind> keys{};
    for (size_t i = 0; i < count; ++i) {
      keys.panel[i] = w.tiles.keys[t + i];
      keys.ahead[i] = w.tiles.values[t + i];
    }
    run_tiles(score_tile(w, keys, t), w.queries, count);
  }
}

template <KvKind kind>
static void sum_stored(const ChunkWork& w) {
  const std::byte* ahead[k_chunk_positions / 16];
  for (size_t t = 0; t < w.tiles.count; ++t) ahead[t] = w.ahead_of_values(t);
  const StoredValues<kind> values{w.tiles.values, ahead, 0};
  run_tiles(value_tile(w, values, 0, w.tiles.count), w.queries, whole_lanes(w.head_dim) / 16);
}

/// Keys converted before use, some tiles at a time: [tile][element][16 positions].
template <KvKind kind>
static void score_strips(const ChunkWork& w, const KvLayer& kv) {
  const size_t strip_tiles = strip_tiles_max(w.head_dim);
  const size_t units = whole_lanes(w.head_dim) / 16;
  for (size_t t = 0; t < w.tiles.count; t += strip_tiles) {
    const size_t count = min_of(strip_tiles, w.tiles.count - t);
    for (size_t i = 0; i < count; ++i) {
      decode_tile<kind>({.tile = w.tiles.keys[t + i],
                         .units = units,
                         .out = w.strip + i * units * 256,
                         .stride = 256,
                         .ahead = w.tiles.values[t + i],
                         .ahead_bytes = kv.v_tile_bytes});
    }
    run_tiles(score_tile(w, Strip{w.strip, units * 256}, t), w.queries, count);
  }
}

/// Values likewise: [unit][position][16 elements].
template <KvKind kind>
static void sum_strips(const ChunkWork& w, const KvLayer& kv) {
  const size_t strip_tiles = strip_tiles_max(w.head_dim);
  const size_t units = whole_lanes(w.head_dim) / 16;
  for (size_t t = 0; t < w.tiles.count; t += strip_tiles) {
    const size_t count = min_of(strip_tiles, w.tiles.count - t);
    for (size_t i = 0; i < count; ++i) {
      decode_tile<kind>({.tile = w.tiles.values[t + i],
                         .units = units,
                         .out = w.strip + i * 256,
                         .stride = strip_tiles * 256,
                         .ahead = w.ahead_of_values(t + i),
                         .ahead_bytes = kv.k_tile_bytes});
    }
    run_tiles(value_tile(w, Strip{w.strip, strip_tiles * 256}, t, count), w.queries, units);
  }
}

/// Whether a sum is no finite number: then one that counts for nothing may be none, and 0 times it.
OUTRIDER_INLINE bool has_odd_sums(const ChunkWork& w) {
  Ints top = zero_ints();
  const size_t count = w.queries * whole_lanes(w.head_dim);
  for (size_t i = 0; i < count; i += 16) top = max(top, magnitude_bits(load(w.values + i)));
  return reduce_max(top) >= 0x7F800000;
}

/// The same sums, over each query's own positions only: zeros before and behind add nothing.
template <KvKind kind>
static void sum_own(const ChunkWork& w) {
  const size_t width = whole_lanes(w.head_dim);
  for (size_t j = 0; j < w.queries; ++j) {
    for (size_t d = 0; d < width; d += 16) {
      Vec sum = zero();
      for (size_t i = w.from[j]; i < w.valid[j]; ++i) {
        const std::byte* at = w.tiles.values[i / 16] + (d + i % 16) * k_vector_bytes<kind>;
        sum = fma(load_number<kind>(at), broadcast(w.scores[j * k_chunk_positions + i]), sum);
      }
      store(w.values + j * width + d, sum);
    }
  }
}

static void score_all_codes(const ChunkWork& w, const KvLayer& kv) {
  const size_t units = whole_lanes(w.head_dim) / 16;
  const size_t stride = 16 * units;
  const auto run = [&](const auto& table) {
    for (size_t t = 0; t < w.tiles.count; t += 2) {
      const size_t other = min_of(t + 1, w.tiles.count - 1);
      CodeScores job = {.tiles = {w.tiles.keys[t], w.tiles.keys[other]},
                        .units = units,
                        .book = kv.k_codebook,
                        .q = w.q_codes,
                        .q_stride = stride,
                        .q_scale = w.q_scale,
                        .scores = {w.scores + 16 * t, w.scores + 16 * other},
                        .ahead = {w.tiles.values[t], w.tiles.values[other]},
                        .ahead_step = (kv.v_tile_bytes + units - 1) / units};
      for (size_t r = 0; r < w.queries;) {
        const size_t height = min_of(w.queries - r, k_column_rows);
        table.score[height - 1](job);
        job.q += height * stride;
        job.q_scale += height;
        for (float*& scores : job.scores) scores += height * k_chunk_positions;
        job.ahead_step = 0;
        r += height;
      }
    }
  };
  with_code_kind(kv.k_kind, [&](auto k) { run(k_code_tiles<decltype(k)::kind>); });
}

/// Codes of one query's weights for one group of elements, and their scale. `scales` lie at that
/// place in each tile; outside of the query's positions they may be anything.
OUTRIDER_INLINE float weigh(const ChunkWork& w, size_t query, size_t scales, int16_t* codes) {
  const float* p = w.scores + query * k_chunk_positions;
  const size_t from = w.from[query];
  const size_t valid = w.valid[query];
  return quantize_values(
      [&](size_t i) __attribute__((always_inline)) {
        Vec scale = load_half(w.tiles.values[i / 16] + scales);
        if (i + 16 > valid) scale = select_first(valid > i ? valid - i : 0, scale, zero());
        if (i < from) scale = select_first(min_of(16, from - i), zero(), scale);
        return load(p + i) * scale;
      },
      16 * w.tiles.count,
      [&](size_t i, Ints code) __attribute__((always_inline)) { store_int16(codes + i, code); });
}

static void sum_all_codes(const ChunkWork& w, const KvLayer& kv) {
  const size_t units = whole_lanes(w.head_dim) / 16;
  const size_t groups = (units + 1) / 2;
  const size_t scales = units * kv_kind_info(kv.v_kind).unit_bytes();
  const size_t ahead_step = (kv.k_tile_bytes + groups - 1) / groups;
  const std::byte* ahead[k_chunk_positions / 16];
  for (size_t t = 0; t < w.tiles.count; ++t) ahead[t] = w.ahead_of_values(t);
  const auto run = [&](const auto& table) {
    for (size_t g = 0; g < groups; ++g) {
      for (size_t r = 0; r < w.queries; ++r) {
        w.codes.w_scale[r] = weigh(w, r, scales + 32 * g, w.codes.w + r * k_chunk_positions);
      }
      CodeValues job = {.tiles = w.tiles.values,
                        .count = w.tiles.count,
                        .units = {2 * g, min_of(2 * g + 1, units - 1)},
                        .book = kv.v_codebook,
                        .w = w.codes.w,
                        .w_scale = w.codes.w_scale,
                        .values = w.values,
                        .stride = 16 * units,
                        .ahead = ahead,
                        .ahead_at = g * ahead_step,
                        .ahead_step = ahead_step};
      for (size_t r = 0; r < w.queries;) {
        const size_t height = min_of(w.queries - r, k_column_rows);
        table.sum[height - 1](job);
        job.w += height * k_chunk_positions;
        job.w_scale += height;
        job.values += height * job.stride;
        job.ahead_step = 0;
        r += height;
      }
    }
  };
  with_code_kind(kv.v_kind, [&](auto k) { run(k_code_tiles<decltype(k)::kind>); });
}

static void score(const ChunkWork& w, const KvLayer& kv) {
  if (kv_kind_info(kv.k_kind).has_scales) return score_all_codes(w, kv);
  with_number_kind(kv.k_kind, [&](auto k) {
    constexpr KvKind kind = decltype(k)::kind;
    reads_directly(kind, w.queries) ? score_stored<kind>(w) : score_strips<kind>(w, kv);
  });
}

static void sum(const ChunkWork& w, const KvLayer& kv) {
  if (kv_kind_info(kv.v_kind).has_scales) return sum_all_codes(w, kv);
  with_number_kind(kv.v_kind, [&](auto k) {
    constexpr KvKind kind = decltype(k)::kind;
    reads_directly(kind, w.queries) ? sum_stored<kind>(w) : sum_strips<kind>(w, kv);
    if (has_odd_sums(w)) sum_own<kind>(w);
  });
}

/// One query's scores, in powers of two, over `tiles` tiles become 2^(score - max); positions from
/// `valid` on get 0. The sum runs over 16 lanes in ascending position, then over the fixed tree.
OUTRIDER_INLINE void softmax_chunk(float* scores, size_t valid, size_t tiles, float* max_out,
                                   float* sum_out) {
  const size_t whole = valid / 16;
  const size_t rest = valid % 16;
  Vec top = broadcast(k_lowest);
  for (size_t t = 0; t < whole; ++t) top = max(top, load(scores + 16 * t));
  if (rest != 0) {
    top = max(top, select_first(rest, load(scores + 16 * whole), broadcast(k_lowest)));
  }
  const float highest = reduce_max(top);
  Vec sum = zero();
  for (size_t t = 0; t < whole; ++t) {
    const Vec p = exp2_of_negative(load(scores + 16 * t) - broadcast(highest));
    store(scores + 16 * t, p);
    sum = sum + p;
  }
  if (rest != 0) {
    const Vec p = exp2_of_negative(load(scores + 16 * whole) - broadcast(highest));
    const Vec masked = select_first(rest, p, zero());
    store(scores + 16 * whole, masked);
    sum = sum + masked;
  }
  for (size_t t = (valid + 15) / 16; t < tiles; ++t) store(scores + 16 * t, zero());
  *max_out = highest;
  *sum_out = reduce_add(sum);
}

/// Likewise, where positions before `from` get 0 as well: the same sum as without them.
static void softmax_window(float* scores, size_t from, size_t valid, size_t tiles, float* max_out,
                           float* sum_out) {
  const auto inside = [&](size_t t, Vec x, Vec otherwise) __attribute__((always_inline)) {
    x = select_first(min_of(16, valid - 16 * t), x, otherwise);
    return from <= 16 * t ? x : select_first(from - 16 * t, otherwise, x);
  };
  const size_t begin = from / 16;
  const size_t end = (valid + 15) / 16;
  Vec top = broadcast(k_lowest);
  for (size_t t = begin; t < end; ++t) {
    top = max(top, inside(t, load(scores + 16 * t), broadcast(k_lowest)));
  }
  const float highest = reduce_max(top);
  Vec sum = zero();
  for (size_t t = 0; t < tiles; ++t) {
    Vec p = zero();
    if (t >= begin && t < end) {
      p = inside(t, exp2_of_negative(load(scores + 16 * t) - broadcast(highest)), zero());
      sum = sum + p;
    }
    store(scores + 16 * t, p);
  }
  *max_out = highest;
  *sum_out = reduce_add(sum);
}

/// Results of one chunk for queries [first, end) of an item; the others have no part in it. `unit`
/// is the item's first: any others come after it, all with rows that attend to the whole chunk.
static void attend_chunk(const KvLayer& kv, const AttentionUnit& unit, size_t chunk, size_t first,
                         size_t end, const ChunkTiles& tiles, const ChunkTiles& next,
                         AttentionScratch& s, ChunkResult& out) {
  size_t from[k_queries_max];
  size_t valid[k_queries_max];
  const size_t room = (chunk + 1) * k_chunk_positions - tiles.first;
  const size_t own = unit.rows * unit.heads;
  for (size_t j = first; j < end; ++j) {
    const size_t position = unit.first_position + j / unit.heads;
    const size_t start = j < own ? window_start(unit.window, position) : 0;
    from[j] = start > tiles.first ? start - tiles.first : 0;
    valid[j] = min_of(room, position + 1 - tiles.first);
  }
  const size_t width = whole_lanes(kv.head_dim);
  const ChunkWork work = {.head_dim = kv.head_dim,
                          .queries = end - first,
                          .tiles = tiles,
                          .next = next,
                          .q = s.q + first * kv.head_dim,
                          .scores = s.scores + first * k_chunk_positions,
                          .values = out.values + first * width,
                          .strip = s.strip,
                          .from = from + first,
                          .valid = valid + first,
                          .q_codes = s.codes.q + first * width,
                          .q_scale = s.codes.q_scale + first,
                          .codes = s.codes};
  score(work, kv);
  for (size_t j = first; j < end; ++j) {
    float* scores = s.scores + j * k_chunk_positions;
    if (from[j] == 0) {
      softmax_chunk(scores, valid[j], tiles.count, &out.max[j], &out.sum[j]);
    } else {
      softmax_window(scores, from[j], valid[j], tiles.count, &out.max[j], &out.sum[j]);
    }
  }
  sum(work, kv);
}

}  // namespace outrider::kernels::OUTRIDER_ISA
