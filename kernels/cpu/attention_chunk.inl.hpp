#pragma once

#include "kernels/cpu/kernel_table.hpp"
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
};

/// The tiles of 16 positions that one item reads in one chunk.
struct ChunkTiles {
  const std::byte* keys[k_chunk_positions / 16];
  const std::byte* values[k_chunk_positions / 16];
  size_t count = 0;
};

static ChunkTiles chunk_tiles(const KvLayer& kv, const AttentionUnit& unit, size_t chunk) {
  ChunkTiles tiles;
  const size_t base = chunk * k_chunk_positions;
  const size_t end = unit.first_position + unit.rows;
  tiles.count = (min_of(k_chunk_positions, end - base) + 15) / 16;
  for (size_t i = 0; i < tiles.count; ++i) {
    const size_t tile = base / 16 + i;
    const auto block = static_cast<size_t>(unit.block_table[tile / kv.block_tiles]);
    const std::byte* head = kv.pool + block * kv.block_bytes + unit.kv_head * kv.head_bytes;
    const size_t elements = tile % kv.block_tiles * k_tile_positions * kv.head_dim;
    tiles.keys[i] = head + elements * (kv.k_half ? 2 : 4);
    tiles.values[i] = head + kv.v_at + elements * (kv.v_half ? 2 : 4);
  }
  return tiles;
}

OUTRIDER_INLINE Vec load_stored(const std::byte* at, bool half) {
  return half ? load_half(at) : load(reinterpret_cast<const float*>(at));
}

template <bool half>
constexpr size_t k_vector_bytes = half ? 32 : 64;

/// Keys of up to four tiles as they are stored, one panel a tile. What lies at `ahead` is wanted
/// soon; 16 lanes of it are fetched for each vector that is used.
template <bool half>
struct StoredKeys {
  const std::byte* panel[4];
  const std::byte* ahead[4];

  [[gnu::always_inline]] Vec weight(size_t p, size_t k) const {
    if (!half || k % 2 == 0) __builtin_prefetch(ahead[p] + k * k_vector_bytes<half>, 0, 2);
    return load_stored(panel[p] + k * k_vector_bytes<half>, half);
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

/// Values of all tiles of a chunk as they are stored, k over their positions; a panel is 16
/// elements of the head. Fetches `ahead` likewise.
template <bool half>
struct StoredValues {
  const std::byte* const* tiles;
  const std::byte* const* ahead;  ///< for each tile
  size_t row_bytes;
  size_t at;  ///< of panel 0 in a row

  [[gnu::always_inline]] Vec weight(size_t p, size_t k) const {
    const size_t place = k % 16 * row_bytes + at + p * k_vector_bytes<half>;
    if (!half || p % 2 == 0) __builtin_prefetch(ahead[k / 16] + place, 0, 2);
    return load_stored(tiles[k / 16] + place, half);
  }
  [[gnu::always_inline]] StoredValues from_panel(size_t p) const {
    return {tiles, ahead, row_bytes, at + p * k_vector_bytes<half>};
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

template <bool half>
static void score_stored(const ChunkWork& w) {
  for (size_t t = 0; t < w.tiles.count; t += 4) {
    const size_t count = min_of(4, w.tiles.count - t);
    StoredKeys<half> keys{};
    for (size_t i = 0; i < count; ++i) {
      keys.panel[i] = w.tiles.keys[t + i];
      keys.ahead[i] = w.tiles.values[t + i];
    }
    run_tiles(score_tile(w, keys, t), w.queries, count);
  }
}

/// head_dim is a multiple of 16.
template <bool half>
static void sum_stored(const ChunkWork& w) {
  const std::byte* ahead[k_chunk_positions / 16];
  for (size_t t = 0; t < w.tiles.count; ++t) ahead[t] = w.ahead_of_values(t);
  const StoredValues<half> values{w.tiles.values, ahead, w.head_dim / 16 * k_vector_bytes<half>, 0};
  run_tiles(value_tile(w, values, 0, w.tiles.count), w.queries, w.head_dim / 16);
}

OUTRIDER_INLINE void fetch(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/// K tile [head_dim][16] as floats.
static void decode_keys(const std::byte* tile, bool half, size_t head_dim, float* strip) {
  const size_t step = half ? 32 : 64;
  for (size_t d = 0; d < head_dim; ++d) store(strip + 16 * d, load_stored(tile + d * step, half));
}

/// V tile [16][head_dim] as floats [panel of 16 d][position][16], panels `panel_stride` apart;
/// lanes past head_dim are zero.
static void decode_values(const std::byte* tile, bool half, size_t head_dim, size_t panel_stride,
                          float* strip) {
  const size_t element = half ? 2 : 4;
  for (size_t d = 0; d < head_dim; d += 16) {
    const size_t width = min_of(16, head_dim - d);
    float* out = strip + d / 16 * panel_stride;
    for (size_t t = 0; t < 16; ++t) {
      const std::byte* at = tile + (t * head_dim + d) * element;
      if (width == 16) {
        store(out + 16 * t, load_stored(at, half));
        continue;
      }
      alignas(64) std::byte part[64] = {};
      __builtin_memcpy(part, at, width * element);
      store(out + 16 * t, load_stored(part, half));
    }
  }
}

static void score_strips(const ChunkWork& w, bool half) {
  const size_t strip_tiles = strip_tiles_max(w.head_dim);
  for (size_t t = 0; t < w.tiles.count; t += strip_tiles) {
    const size_t count = min_of(strip_tiles, w.tiles.count - t);
    for (size_t i = 0; i < count; ++i) {
      fetch(w.tiles.values[t + i], 16 * w.head_dim * (half ? 2 : 4));
      decode_keys(w.tiles.keys[t + i], half, w.head_dim, w.strip + i * 16 * w.head_dim);
    }
    run_tiles(score_tile(w, Strip{w.strip, 16 * w.head_dim}, t), w.queries, count);
  }
}

static void sum_strips(const ChunkWork& w, bool half) {
  const size_t strip_tiles = strip_tiles_max(w.head_dim);
  for (size_t t = 0; t < w.tiles.count; t += strip_tiles) {
    const size_t count = min_of(strip_tiles, w.tiles.count - t);
    for (size_t i = 0; i < count; ++i) {
      fetch(w.ahead_of_values(t + i), 16 * w.head_dim * (half ? 2 : 4));
      decode_values(w.tiles.values[t + i], half, w.head_dim, strip_tiles * 256, w.strip + i * 256);
    }
    run_tiles(value_tile(w, Strip{w.strip, strip_tiles * 256}, t, count), w.queries,
              whole_lanes(w.head_dim) / 16);
  }
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

/// Results of one chunk for queries [first, queries) of an item; earlier ones end before it. `unit`
/// is the item's first: any others come after it, all with rows behind the chunk.
static void attend_chunk(const KvLayer& kv, const AttentionUnit& unit, size_t chunk, size_t first,
                         size_t queries, const ChunkTiles& tiles, const ChunkTiles& next,
                         AttentionScratch& s, ChunkResult& out) {
  const ChunkWork work = {.head_dim = kv.head_dim,
                          .queries = queries - first,
                          .tiles = tiles,
                          .next = next,
                          .q = s.q + first * kv.head_dim,
                          .scores = s.scores + first * k_chunk_positions,
                          .values = out.values + first * whole_lanes(kv.head_dim),
                          .strip = s.strip};
  const bool direct = work.queries <= k_direct_queries && kv.head_dim % 16 == 0;
  if (direct) {
    (kv.k_half ? score_stored<true> : score_stored<false>)(work);
  } else {
    score_strips(work, kv.k_half);
  }
  const size_t base = chunk * k_chunk_positions;
  for (size_t j = first; j < queries; ++j) {
    const size_t end = unit.first_position + j / unit.heads + 1;
    softmax_chunk(s.scores + j * k_chunk_positions, min_of(k_chunk_positions, end - base),
                  tiles.count, &out.max[j], &out.sum[j]);
  }
  if (direct) {
    (kv.v_half ? sum_stored<true> : sum_stored<false>)(work);
  } else {
    sum_strips(work, kv.v_half);
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
