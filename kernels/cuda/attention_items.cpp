#include "kernels/cuda/attention_items.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "kernels/kv_codec.hpp"

namespace outrider::kernels::cuda {
namespace {

KvTiles kv_tiles(KvKind kind, uint32_t head_dim) {
  const KvKindInfo info = kv_kind_info(kind);
  const auto unit_bytes = static_cast<uint32_t>(info.unit_bytes());
  KvTiles tiles = {.kind = kind,
                   .has_scales = info.has_scales,
                   .unit_bytes = unit_bytes,
                   .tile_bytes = static_cast<uint32_t>(kv_tile_bytes(kind, head_dim)),
                   .scales_at = (head_dim + 15) / 16 * unit_bytes};
  if (kind == KvKind::nf4 || kind == KvKind::q3) {
    std::copy_n(kv_codebook(kind).begin(), 16, tiles.book);
  }
  return tiles;
}

/// Puts the ids of the blocks up to `positions` behind the others; returns where they begin.
uint32_t add_table(const KvGeometry& geometry, const Segment& segment,
                   std::vector<int32_t>& tables) {
  const auto at = static_cast<uint32_t>(tables.size());
  const uint32_t positions = segment.first_position + segment.rows;
  const uint32_t blocks = (positions + geometry.block_tokens - 1) / geometry.block_tokens;
  tables.insert(tables.end(), segment.block_table, segment.block_table + blocks);
  return at;
}

size_t rounded(size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

/// What FloatAttention keeps besides tiles.
size_t state_bytes(uint32_t head_dim, uint32_t queries) {
  return 3 * rounded(size_t{head_dim} * queries * sizeof(float)) +
         rounded(size_t{k_chunk} * queries * sizeof(float)) +
         2 * rounded(size_t{2} * queries * sizeof(float));
}

/// What queries_of_item says.
constexpr uint32_t k_queries_min = 4, k_float_queries_max = 8, k_queries_max = 64;

size_t shared_bytes(const Attention& call, bool spread) {
  if (!call.on_tensor_cores) {
    return state_bytes(call.head_dim, call.queries_max) +
           size_t{call.stages.count} * call.stages.bytes;
  }
  if (call.queries_max <= 16) return TensorAttention<1>::shared_bytes(call, spread);
  return call.queries_max == 32 ? TensorAttention<2>::shared_bytes(call, spread)
                                : TensorAttention<4>::shared_bytes(call, spread);
}

/// So many parts of an item's chunks that the blocks of all items end soonest, if each chunk takes
/// a block one unit of time, its start half of one, and the merge of chunks two.
uint32_t parts_of(uint32_t blocks, uint32_t chunks, uint32_t blocks_at_once) {
  uint32_t best = 1;
  uint64_t soonest = UINT64_MAX;
  for (uint32_t parts = 1; parts <= chunks; ++parts) {
    const uint64_t rounds = (uint64_t{blocks} * parts + blocks_at_once - 1) / blocks_at_once;
    const uint32_t of_block = (chunks + parts - 1) / parts;
    const uint64_t end = rounds * (2 * of_block + 1) + (parts > 1 ? 4 : 0);
    if (end >= soonest) continue;
    soonest = end;
    best = parts;
  }
  return best;
}

/// Blocks that run at a time, about; of decoding, more.
uint32_t blocks_at_once(const Attention& call, uint32_t multiprocessors) {
  return multiprocessors * (call.on_tensor_cores && call.queries_max <= 16 ? 3 : 2);
}
/// More blocks than that are left as they are: the last of them leave little empty, and what is
/// spread takes memory. Where items have many queries, what chunks leave is as much as they read.
uint32_t spread_blocks_max(const Attention& call, uint32_t multiprocessors) {
  if (!call.on_tensor_cores || call.queries_max > 16) return 2 * multiprocessors - 1;
  return 4 * blocks_at_once(call, multiprocessors);
}

}  // namespace

KvPool kv_pool(const KvGeometry& geometry, uint32_t layer, std::byte* pool) {
  return {.layer = pool + layer * geometry.layer_bytes(),
          .block_bytes = geometry.block_bytes(),
          .head_bytes = geometry.head_k_bytes() + geometry.head_v_bytes(),
          .values_at = geometry.head_k_bytes(),
          .block_tiles = geometry.block_tokens / 16,
          .head_dim = geometry.head_dim,
          .of = {kv_tiles(geometry.k_kind, geometry.head_dim),
                 kv_tiles(geometry.v_kind, geometry.head_dim)}};
}

void append_items(const KvGeometry& geometry, std::span<const Segment> segments,
                  Items<AppendItem>& out) {
  out.items.clear();
  out.tables.clear();
  for (const Segment& s : segments) {
    const uint32_t table_at = add_table(geometry, s, out.tables);
    for (uint32_t row = 0; row < s.rows;) {
      const uint32_t position = s.first_position + row;
      const uint32_t rows = std::min(16 - position % 16, s.rows - row);
      out.items.push_back({table_at, s.first_row + row, position, rows});
      row += rows;
    }
  }
}

void attention_items(const KvGeometry& geometry, std::span<const Segment> segments, size_t heads,
                     uint32_t queries_max, Items<AttentionItem>& out) {
  out.items.clear();
  out.tables.clear();
  const auto group = static_cast<uint32_t>(heads / geometry.kv_heads);
  for (const Segment& s : segments) {
    const uint32_t table_at = add_table(geometry, s, out.tables);
    const auto before = static_cast<long>(out.items.size());
    for (uint32_t first = 0; first < s.rows * group; first += queries_max) {
      const uint32_t queries = std::min(queries_max, s.rows * group - first);
      out.items.push_back({table_at, s.first_row, s.first_position, first, queries});
    }
    std::reverse(out.items.begin() + before, out.items.end());  // a prompt's longest come first
  }
}

size_t append_items_max(size_t rows, size_t segments) {
  return rows / 16 + 2 * segments;
}

size_t attention_items_max(size_t queries, size_t segments) {
  return queries / k_queries_min + segments;
}

Attention attention_call(const KvGeometry& geometry, std::span<const Segment> segments,
                         size_t heads, size_t shared_bytes_max) {
  OUTRIDER_CHECK(heads % geometry.kv_heads == 0, heads, geometry.kv_heads);
  Attention call;
  call.head_dim = geometry.head_dim;
  call.heads = static_cast<uint32_t>(heads);
  call.kv_heads = geometry.kv_heads;
  call.window = geometry.window;
  call.on_tensor_cores = attention_on_tensor_cores(geometry);
  call.queries_max = queries_of_item(geometry, segments, heads, shared_bytes_max);
  call.stages = attention_stages(geometry, call.queries_max, shared_bytes_max);
  OUTRIDER_CHECK(call.stages.tiles > 0, geometry.head_dim, shared_bytes_max);
  return call;
}

bool attention_on_tensor_cores(const KvGeometry& geometry) {
  return fits_halves(geometry.k_kind) && fits_halves(geometry.v_kind) &&
         geometry.head_dim <= ChunkedAttention::k_head_dim_max;
}

uint32_t queries_of_item(const KvGeometry& geometry, std::span<const Segment> segments,
                         size_t heads, size_t shared_bytes_max) {
  uint32_t rows = 1;
  for (const Segment& s : segments) rows = std::max(rows, s.rows);
  const size_t wanted = rows * (heads / geometry.kv_heads);
  const uint32_t most = attention_on_tensor_cores(geometry) ? k_queries_max : k_float_queries_max;
  uint32_t queries = k_queries_min;
  while (queries < most && queries < wanted &&
         attention_stages(geometry, 2 * queries, shared_bytes_max).tiles > 0) {
    queries *= 2;
  }
  return queries;
}

AttentionStages attention_stages(const KvGeometry& geometry, uint32_t queries_max,
                                 size_t shared_bytes_max) {
  AttentionStages stages;
  const KvKind kinds[] = {geometry.k_kind, geometry.v_kind};
  if (attention_on_tensor_cores(geometry)) {
    Attention call;
    call.on_tensor_cores = true;
    call.head_dim = geometry.head_dim;
    call.queries_max = queries_max;
    for (size_t i = 0; i < 2; ++i) {
      call.stages.tile_pitch[i] = static_cast<uint32_t>(kv_tile_bytes(kinds[i], geometry.head_dim));
    }
    if (shared_bytes(call, false) > shared_bytes_max) call.stages.tiles = 0;
    return call.stages;
  }
  for (size_t i = 0; i < 2; ++i) {
    stages.tile_pitch[i] = static_cast<uint32_t>(kv_tile_bytes(kinds[i], geometry.head_dim)) + 32;
  }
  const size_t pitch = std::max(stages.tile_pitch[0], stages.tile_pitch[1]);
  const size_t state = state_bytes(geometry.head_dim, queries_max);
  const auto fits = [&](uint32_t count, uint32_t tiles) {
    return state + count * rounded(tiles * pitch) <= shared_bytes_max;
  };
  while (stages.tiles > 1 && !fits(2, stages.tiles)) stages.tiles /= 2;
  if (!fits(2, stages.tiles)) stages.count = 1;
  if (!fits(1, stages.tiles)) stages.tiles = 0;
  stages.bytes = static_cast<uint32_t>(rounded(stages.tiles * pitch));
  return stages;
}

size_t partial_floats_max(const StepSizes& sizes, uint32_t multiprocessors) {
  const size_t chunks = std::bit_ceil(sizes.positions / k_chunk + size_t{1});
  const size_t queries = sizes.rows * (sizes.heads / sizes.geometry.kv_heads);
  size_t floats = 0;
  Attention call;
  call.on_tensor_cores = attention_on_tensor_cores(sizes.geometry);
  for (const uint32_t of_item : {k_float_queries_max, 16u, k_queries_max}) {
    call.queries_max = of_item;
    const size_t most = std::min<size_t>(of_item, std::bit_ceil(std::max<size_t>(queries, 4)));
    floats = std::max(floats, spread_blocks_max(call, multiprocessors) * chunks * most *
                                  (2 + size_t{sizes.geometry.head_dim}));
  }
  return std::min(k_partial_floats_max, floats);
}

size_t step_items_bytes_max(const StepSizes& sizes) {
  const size_t blocks = sizes.positions / sizes.geometry.block_tokens + size_t{1};
  const size_t queries = sizes.rows * (sizes.heads / sizes.geometry.kv_heads);
  return sizes.segments * blocks * sizeof(int32_t) +
         std::max(attention_items_max(queries, sizes.segments) * sizeof(AttentionItem),
                  append_items_max(sizes.rows, sizes.segments) * sizeof(AppendItem));
}

uint32_t chunks_of(const AttentionCall& call, std::span<const AttentionItem> items) {
  uint32_t chunks = 0;
  for (const AttentionItem& item : items) {
    chunks = std::max(chunks, call.end_chunk(item) - call.first_chunk(item));
  }
  return chunks;
}

AttentionPlan plan_attention(const Attention& call, AttentionShape shape,
                             uint32_t multiprocessors) {
  AttentionPlan plan;
  plan.launch = {.x = shape.items,
                 .y = call.kv_heads,
                 .threads = k_chunk,
                 .shared_bytes = shared_bytes(call, false)};
  const size_t blocks = size_t{shape.items} * call.kv_heads;
  const size_t floats = blocks * shape.chunks * call.queries_max * (2 + call.head_dim);
  if (blocks > spread_blocks_max(call, multiprocessors)) return plan;
  if (floats > k_partial_floats_max) return plan;
  const uint32_t parts =
      parts_of(static_cast<uint32_t>(blocks), shape.chunks, blocks_at_once(call, multiprocessors));
  if (parts < 2) return plan;
  plan.partial_floats = floats;
  plan.chunks_max = shape.chunks;
  plan.launch.z = parts;
  plan.launch.shared_bytes = shared_bytes(call, true);
  return plan;
}

}  // namespace outrider::kernels::cuda
