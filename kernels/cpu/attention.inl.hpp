#pragma once

#include "kernels/cpu/attention_chunk.inl.hpp"

/// Attention of work items: their chunks in ascending order, merged or left for `combine`.
namespace outrider::kernels::OUTRIDER_ISA {

/// What the chunks so far and the next one weigh in their union, per query.
struct MergeWeights {
  float keep[k_queries_max];
  float add[k_queries_max];
};

/// Maxima and sums of n queries over the chunks so far take up the next chunk's.
static void merge_sums(float* max_io, float* sum_io, const float* max_in, const float* sum_in,
                       size_t n, MergeWeights& weights) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t count = min_of(16, n - i);
    const Vec old_max = load_first(max_io + i, count);
    const Vec new_max = load_first(max_in + i, count);
    const Vec top = max(old_max, new_max);
    const Vec keep = exp2_of_negative(old_max - top);
    const Vec add = exp2_of_negative(new_max - top);
    store_first(max_io + i, top, count);
    store_first(sum_io + i,
                fma(load_first(sum_io + i, count), keep, load_first(sum_in + i, count) * add),
                count);
    store_first(weights.keep + i, keep, count);
    store_first(weights.add + i, add, count);
  }
}

/// Likewise the weighted values of one query.
OUTRIDER_INLINE void merge_values(float* values, const float* values_in, float keep, float add,
                                  size_t width) {
  for (size_t d = 0; d < width; d += 16) {
    const Vec in = load(values_in + d) * broadcast(add);
    store(values + d, fma(load(values + d), broadcast(keep), in));
  }
}

/// out = values / sum. Adding zero turns -0 into +0: whether a sum of zeros is negative could
/// depend on masked positions.
OUTRIDER_INLINE void write_out(const float* values, float sum, size_t head_dim, float* out) {
  const Vec inverse = broadcast(1.0f / sum);
  for (size_t d = 0; d < head_dim; d += 16) {
    store_first(out + d, load(values + d) * inverse + zero(), min_of(16, head_dim - d));
  }
}

OUTRIDER_INLINE size_t query_at(const AttentionArgs& a, const AttentionItem& item, size_t j) {
  const size_t row = item.first_row + j / item.heads;
  return (row * a.heads + item.first_head + j % item.heads) * a.kv.head_dim;
}

/// The item's queries, scaled so that scores come out as powers of two.
static void load_queries(const AttentionArgs& a, const AttentionItem& item, float* out) {
  const Vec scale = broadcast(a.scale * 0x1.715476p+0f);
  const size_t head_dim = a.kv.head_dim;
  for (size_t j = 0; j < item.rows * item.heads; ++j) {
    const float* q = a.q + query_at(a, item, j);
    for (size_t d = 0; d < head_dim; d += 16) {
      const size_t n = min_of(16, head_dim - d);
      store_first(out + j * head_dim + d, load_first(q + d, n) * scale, n);
    }
  }
}

/// Rows that end before the chunk have no part in it.
OUTRIDER_INLINE size_t first_query(const AttentionItem& item, size_t chunk) {
  const size_t base = chunk * k_chunk_positions;
  return base > item.first_position ? (base - item.first_position) * item.heads : 0;
}

/// One chunk of an item that has partial results.
static void store_partials(const AttentionItem& item, size_t chunk, size_t head_dim,
                           const ChunkResult& result) {
  const size_t queries = item.rows * item.heads;
  const size_t width = whole_lanes(head_dim);
  float* partials = item.partials + (chunk - item.first_chunk) * queries * partial_floats(head_dim);
  for (size_t j = first_query(item, chunk); j < queries; ++j) {
    float* partial = partials + j * partial_floats(head_dim);
    partial[0] = result.max[j];
    partial[1] = result.sum[j];
    __builtin_memcpy(partial + 16, result.values + j * width, width * sizeof(float));
  }
}

/// The next chunk of an item that covers all of its own is merged into the total.
static void merge_chunk(const AttentionItem& item, size_t chunk, size_t width,
                        const ChunkResult& result, ChunkResult& total) {
  const size_t first = first_query(item, chunk);
  const size_t queries = item.rows * item.heads;
  MergeWeights weights;
  merge_sums(total.max + first, total.sum + first, result.max + first, result.sum + first,
             queries - first, weights);
  for (size_t j = first; j < queries; ++j) {
    merge_values(total.values + j * width, result.values + j * width, weights.keep[j - first],
                 weights.add[j - first], width);
  }
}

static void attend(const AttentionArgs& a, const AttentionItem* items, size_t count) {
  const size_t head_dim = a.kv.head_dim;
  const size_t width = whole_lanes(head_dim);
  AttentionScratch scratch;
  ChunkResult result;
  ChunkResult total;
  ChunkTiles tiles = chunk_tiles(a.kv, items[0], items[0].first_chunk);
  for (size_t i = 0; i < count; ++i) {
    const AttentionItem& item = items[i];
    const bool whole = item.partials == nullptr;
    const size_t end = item.first_chunk + item.chunks;
    load_queries(a, item, scratch.q);
    for (size_t c = item.first_chunk; c < end; ++c) {
      ChunkTiles next;
      if (c + 1 < end) {
        next = chunk_tiles(a.kv, item, c + 1);
      } else if (i + 1 < count) {
        next = chunk_tiles(a.kv, items[i + 1], items[i + 1].first_chunk);
      }
      attend_chunk(a.kv, item, c, first_query(item, c), tiles, next, scratch,
                   whole && c == 0 ? total : result);
      if (!whole) {
        store_partials(item, c, head_dim, result);
      } else if (c > 0) {
        merge_chunk(item, c, width, result, total);
      }
      tiles = next;
    }
    for (size_t j = 0; whole && j < item.rows * item.heads; ++j) {
      write_out(total.values + j * width, total.sum[j], head_dim, a.out + query_at(a, item, j));
    }
  }
}

static void combine(const AttentionArgs& a, const AttentionItem& item) {
  const size_t head_dim = a.kv.head_dim;
  const size_t stride = partial_floats(head_dim);
  const size_t queries = item.rows * item.heads;
  float max[k_queries_max], sum[k_queries_max], max_in[k_queries_max], sum_in[k_queries_max];
  MergeWeights weights;
  for (size_t c = 0; c < item.chunks; ++c) {
    const size_t first = first_query(item, c);
    const float* parts = item.partials + c * queries * stride;
    for (size_t j = first; j < queries; ++j) {
      (c == 0 ? max : max_in)[j] = parts[j * stride];
      (c == 0 ? sum : sum_in)[j] = parts[j * stride + 1];
    }
    if (c == 0) continue;
    merge_sums(max + first, sum + first, max_in + first, sum_in + first, queries - first, weights);
    for (size_t j = first; j < queries; ++j) {
      merge_values(item.partials + j * stride + 16, parts + j * stride + 16,
                   weights.keep[j - first], weights.add[j - first], whole_lanes(head_dim));
    }
  }
  for (size_t j = 0; j < queries; ++j) {
    write_out(item.partials + j * stride + 16, sum[j], head_dim, a.out + query_at(a, item, j));
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
