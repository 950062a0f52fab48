#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/kv_codec.hpp"
#include "kernels/test_support.hpp"

/// Paged caches for the tests of back ends, from a seed.
namespace outrider::kernels::testing_support {

/// A cache of several sequences in blocks of random order, full of other numbers where no position
/// was written, and queries for the last rows of each.
struct AttentionScene {
  AttentionScene(const KvGeometry& g, size_t query_heads, std::vector<uint32_t> sequence_lengths,
                 uint64_t seed)
      : geometry(g), heads(query_heads), lengths(std::move(sequence_lengths)), random(seed) {
    size_t blocks = 3;
    for (const uint32_t n : lengths) blocks += blocks_of(n);
    std::vector<int32_t> order(blocks);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = blocks - 1; i > 0; --i) {
      std::swap(order[i], order[random.below(static_cast<uint32_t>(i + 1))]);
    }
    for (const uint32_t n : lengths) {
      tables.emplace_back(order.end() - static_cast<long>(blocks_of(n)), order.end());
      order.resize(order.size() - blocks_of(n));
    }
    pool.resize(blocks * geometry.block_bytes());
    fill_with_garbage();
    for (const uint32_t n : lengths) {
      keys.push_back(random_floats(random, n * kv_row()));
      values.push_back(random_floats(random, n * kv_row()));
      queries.push_back(random_floats(random, n * q_row(), 2.0f));
    }
  }

  size_t blocks_of(uint32_t n) const {
    return (n + geometry.block_tokens - 1) / geometry.block_tokens;
  }
  size_t kv_row() const { return geometry.kv_heads * geometry.head_dim; }
  size_t q_row() const { return heads * geometry.head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(geometry.head_dim)); }

  /// Finite, large and different each time: must never show.
  void fill_with_garbage() {
    const size_t heads_of_pool = pool.size() / (geometry.head_k_bytes() + geometry.head_v_bytes());
    std::byte* tile = pool.data();
    for (size_t head = 0; head < heads_of_pool; ++head) {
      for (const KvTensor tensor : {KvTensor::keys, KvTensor::values}) {
        const KvKind kind = tensor == KvTensor::keys ? geometry.k_kind : geometry.v_kind;
        for (size_t t = 0; t < geometry.block_tokens / 16; ++t) {
          fill_with_garbage(kind, tensor, tile);
          tile += kv_tile_bytes(kind, geometry.head_dim);
        }
      }
    }
  }
  void fill_with_garbage(KvKind kind, KvTensor tensor, std::byte* tile) {
    std::vector<float> x(geometry.head_dim);
    for (size_t position = 0; position < 16; ++position) {
      for (float& value : x) value = (random.uniform() - 0.5f) * 60'000.0f;
      kv_store(kind, tensor, geometry.head_dim, position, x.data(), tile);
    }
  }

  void append_all(Ops& ops) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      const Segment segment = {tables[s].data(), 0, lengths[s], 0};
      ops.kv_append(geometry, geometry.layers - 1, {&segment, 1}, keys[s].data(), values[s].data(),
                    pool.data());
    }
  }

  /// In all elements of one position of the first sequence.
  void put_odd(size_t position, float key, float value) {
    const auto at = static_cast<long>(position * kv_row());
    std::fill_n(keys[0].begin() + at, kv_row(), key);
    std::fill_n(values[0].begin() + at, kv_row(), value);
  }

  struct Piece {
    size_t sequence;
    uint32_t first_position, rows;
  };

  /// One call over the given pieces; the results of each piece in turn.
  std::vector<float> attend(Ops& ops, const std::vector<Piece>& pieces) const {
    std::vector<float> q;
    std::vector<Segment> segments;
    for (const Piece& p : pieces) {
      segments.push_back({tables[p.sequence].data(), static_cast<uint32_t>(q.size() / q_row()),
                          p.rows, p.first_position});
      const auto begin =
          queries[p.sequence].begin() + static_cast<long>(p.first_position * q_row());
      q.insert(q.end(), begin, begin + static_cast<long>(p.rows * q_row()));
    }
    std::vector<float> out(q.size(), -1.0f);
    ops.attention(geometry, geometry.layers - 1, segments, q.data(), heads, scale(), pool.data(),
                  out.data());
    return out;
  }

  KvGeometry geometry;
  size_t heads;
  std::vector<uint32_t> lengths;
  Random random;
  std::vector<std::vector<int32_t>> tables;
  std::vector<std::vector<float>> keys, values, queries;
  std::vector<std::byte> pool;
};

inline KvGeometry scene_geometry(uint32_t kv_heads, uint32_t head_dim, uint32_t block_tokens,
                                 KvKind k, KvKind v) {
  return {.layers = 2,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .block_tokens = block_tokens,
          .k_kind = k,
          .v_kind = v};
}

struct AttentionShape {
  uint32_t kv_heads, group, head_dim, block_tokens;
  KvKind k, v;
};

inline constexpr AttentionShape k_attention_shapes[] = {
    {3, 1, 64, 16, KvKind::fp16, KvKind::fp16},  {2, 3, 64, 16, KvKind::fp16, KvKind::fp16},
    {1, 6, 128, 32, KvKind::fp16, KvKind::fp16}, {2, 7, 64, 16, KvKind::fp32, KvKind::fp32},
    {1, 3, 128, 16, KvKind::fp32, KvKind::fp16}, {1, 2, 80, 64, KvKind::fp16, KvKind::fp32},
    {1, 40, 20, 16, KvKind::fp16, KvKind::fp16}, {1, 1, 1024, 16, KvKind::fp16, KvKind::fp32},
    {1, 2, 300, 16, KvKind::fp16, KvKind::fp16}, {1, 1, 2, 16, KvKind::fp32, KvKind::fp32},
    {2, 3, 64, 16, KvKind::bf16, KvKind::fp8},   {1, 3, 64, 16, KvKind::fp8, KvKind::bf16},
    {2, 3, 64, 16, KvKind::q8_0, KvKind::q4_0},  {1, 4, 128, 32, KvKind::q4_0, KvKind::q8_0},
    {2, 3, 64, 16, KvKind::nf4, KvKind::q3},     {1, 2, 80, 16, KvKind::q3, KvKind::nf4},
    {1, 2, 20, 16, KvKind::q8_0, KvKind::fp16},
};

}  // namespace outrider::kernels::testing_support
