#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "kernels/cuda/attention_items.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "kernels/cuda/pack_units.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "kernels/cuda/staging.hpp"

namespace outrider::kernels::cuda {
namespace {

Products products(uint32_t m, std::vector<uint32_t> outputs, uint32_t k) {
  Products call;
  call.weight_type = WeightType::q4_k;
  call.m = m;
  call.units = k / k_unit_k;
  for (const uint32_t n : outputs) {
    call.targets[call.count++].w = {.outputs = n, .tiles = (n + 15) / 16, .units = call.units};
  }
  return call;
}

TEST(CudaPlans, FewRowsShareTheTilesOverTheDevice) {
  const ProductPlan plan = plan_products(products(8, {4096, 17}, 4096), 132);
  EXPECT_TRUE(plan.few);
  EXPECT_EQ(plan.call.targets[1].first, 256u);
  EXPECT_EQ(plan.launch.x, 258u);
  EXPECT_EQ(plan.call.blocks, 258u);
  EXPECT_EQ(plan.launch.threads, 32u * plan.call.warps);
  EXPECT_EQ(plan.call.warps, 8u);
  EXPECT_EQ(plan_products(products(8, {14336}, 4096), 132).launch.x, 264u);
  EXPECT_EQ(plan.workspace_floats, 0u);
  const ProductPlan small = plan_products(products(1, {40, 1}, 768), 132);
  EXPECT_EQ(small.launch.x, 4u);
  EXPECT_EQ(small.call.warps, 2u) << "as many as there are segments";
}

TEST(CudaPlans, ManyRowsThatGiveFewBlocksSplitTheirSegments) {
  const ProductPlan plan = plan_products(products(100, {1024, 200}, 4096), 132);
  EXPECT_FALSE(plan.few);
  EXPECT_EQ(plan.nt, 16u);
  EXPECT_EQ(plan.launch.x, 1u);
  EXPECT_EQ(plan.launch.y, 8u + 2u);
  EXPECT_EQ(plan.launch.z, 8u);
  EXPECT_EQ(plan.call.segments_of_block, 1u);
  EXPECT_EQ(plan.workspace_floats, 8u * 100u * 1224u);
  EXPECT_EQ(plan.call.targets[1].workspace_at, 8u * 100u * 1024u);
  EXPECT_EQ(plan.add.x, 4u);
  EXPECT_EQ(plan.add.y, 100u);
  EXPECT_EQ(plan.add.z, 2u);
}

TEST(CudaPlans, ManyRowsThatFillTheDeviceDoNotSplit) {
  const ProductPlan plan = plan_products(products(2048, {4096}, 4096), 132);
  EXPECT_EQ(plan.launch.x * plan.launch.y, 512u);
  EXPECT_EQ(plan.launch.z, 1u);
  EXPECT_EQ(plan.workspace_floats, 0u);
}

TEST(CudaPlans, SplitSegmentsStayWithinTheirMemory) {
  EXPECT_GT(plan_products(products(128, {128}, 1u << 16), 132).workspace_floats, 0u);
  for (const uint32_t m : {33u, 128u, 500u}) {
    for (const uint32_t k : {4096u, 1u << 18}) {
      EXPECT_LE(plan_products(products(m, {4096}, k), 1000).workspace_floats,
                k_workspace_floats_max);
    }
  }
}

TEST(CudaPlans, AnA100HasTheSharedMemoryThatProductsNeed) {
  EXPECT_LE(products_shared_bytes_max(), size_t{163} << 10);
  EXPECT_GE(products_shared_bytes_max(),
            plan_products(products(65, {64}, 64), 4).launch.shared_bytes);
}

TEST(CudaPlans, TilesOfRowsGrowWithTheRows) {
  const std::pair<uint32_t, uint32_t> tiles[] = {{1, 8},   {8, 8},   {9, 16},   {16, 16},  {17, 32},
                                                 {33, 64}, {64, 64}, {65, 128}, {500, 128}};
  for (const auto& [m, rows] : tiles) EXPECT_EQ(tile_rows(m), rows) << m;
  EXPECT_EQ(padded_rows(3), 8u);
  EXPECT_EQ(padded_rows(129), 256u);
  EXPECT_EQ(plan_products(products(40, {4096}, 4096), 132).nt, 8u);
}

KvGeometry geometry(uint32_t head_dim) {
  return {.layers = 2, .kv_heads = 2, .head_dim = head_dim, .block_tokens = 32};
}

/// Each row and head once, each tile once.
TEST(CudaPlans, ItemsCoverTheRowsOnce) {
  const int32_t tables[2][4] = {{7, 3, 5, 1}, {2, 0, 6, 4}};
  const Segment segments[] = {{tables[0], 0, 37, 5}, {tables[1], 37, 1, 127}};
  Items<AppendItem> append;
  append_items(geometry(64), segments, append);
  uint32_t row = 0;
  for (const AppendItem& item : append.items) {
    EXPECT_EQ(item.first_row, row);
    EXPECT_LE(item.first_position % 16 + item.rows, 16u);
    row += item.rows;
  }
  EXPECT_EQ(row, 38u);
  EXPECT_EQ(append.tables, (std::vector<int32_t>{7, 3, 2, 0, 6, 4}));

  Items<AttentionItem> items;
  attention_items(geometry(64), segments, 6, 8, items);
  std::set<std::pair<uint32_t, uint32_t>> queries;  // row of the batch, head of the group
  for (const AttentionItem& item : items.items) {
    EXPECT_LE(item.queries, 8u);
    EXPECT_EQ(item.table_at, item.first_row == 0 ? 0u : 2u);
    for (uint32_t i = item.first_query; i < item.first_query + item.queries; ++i) {
      EXPECT_TRUE(queries.emplace(item.first_row + i / 3, i % 3).second);
    }
  }
  EXPECT_EQ(queries.size(), 38u * 3u);
}

AttentionPlan plan_of(const Attention& call, const std::vector<AttentionItem>& items) {
  return plan_attention(call, {static_cast<uint32_t>(items.size()), chunks_of(call, items)}, 132);
}

TEST(CudaPlans, QueriesAndTilesFitIntoSharedMemory) {
  const int32_t table[8] = {};
  const Segment prompt = {table, 0, 60, 0}, token = {table, 0, 1, 59};
  for (const size_t shared : {size_t{163} << 10, size_t{227} << 10}) {
    for (const uint32_t head_dim : {64u, 128u, 256u, 1024u}) {
      for (const Segment& s : {prompt, token}) {
        const Attention call = attention_call(geometry(head_dim), {&s, 1}, 8, shared);
        EXPECT_EQ(call.on_tensor_cores, head_dim <= 256);
        Items<AttentionItem> items;
        attention_items(geometry(head_dim), {&s, 1}, 8, call.queries_max, items);
        EXPECT_LE(plan_of(call, items.items).launch.shared_bytes, shared) << head_dim;
      }
    }
  }
  KvGeometry large = geometry(1024);
  large.v_kind = KvKind::fp32;
  EXPECT_EQ(attention_stages(large, 4, 163 << 10).count, 1u);
  EXPECT_EQ(attention_stages(large, 4, 163 << 10).tiles, 1u);
  EXPECT_EQ(attention_stages(large, 4, 99 << 10).tiles, 0u);
}

TEST(CudaPlans, ItemsHaveTheQueriesThatTheLongestSegmentNeeds) {
  const int32_t table[8] = {};
  const auto queries = [&](const KvGeometry& g, uint32_t rows, size_t heads, size_t shared) {
    const Segment segments[] = {{table, 0, 1, 0}, {table, 1, rows, 0}};
    return queries_of_item(g, segments, heads, shared);
  };
  for (const auto& [rows, expected] : std::vector<std::pair<uint32_t, uint32_t>>{
           {1, 4}, {2, 8}, {3, 16}, {5, 32}, {8, 32}, {9, 64}, {500, 64}}) {
    EXPECT_EQ(queries(geometry(128), rows, 8, 227 << 10), expected) << rows;
  }
  EXPECT_EQ(queries(geometry(128), 1, 80, 227 << 10), 64u);
  EXPECT_EQ(queries(geometry(256), 500, 8, 227 << 10), 64u);
  EXPECT_EQ(queries(geometry(256), 500, 8, 163 << 10), 16u);
  KvGeometry floats = geometry(128);
  floats.k_kind = KvKind::bf16;
  EXPECT_FALSE(attention_on_tensor_cores(floats));
  EXPECT_EQ(queries(floats, 500, 8, 99 << 10), 8u);
  EXPECT_EQ(queries(floats, 1, 8, 99 << 10), 4u);
}

/// Three blocks of decoding fit a multiprocessor with 228 KiB, of which each block takes 1 more.
TEST(CudaPlans, BlocksOfDecodingShareAMultiprocessor) {
  const std::vector<int32_t> table(256);
  const Segment token = {table.data(), 0, 1, 4000};
  const Attention call = attention_call(geometry(128), {&token, 1}, 8, 227 << 10);
  for (const uint32_t items : {1u, 4096u}) {
    const AttentionPlan plan = plan_attention(call, {items, 32}, 132);
    EXPECT_LE(3 * (plan.launch.shared_bytes + 1024), size_t{228} << 10) << items;
  }
  const Segment prompt = {table.data(), 0, 500, 0};
  const Attention many = attention_call(geometry(128), {&prompt, 1}, 8, 227 << 10);
  EXPECT_LE(2 * (plan_attention(many, {4096, 4}, 132).launch.shared_bytes + 1024),
            size_t{228} << 10);
}

TEST(CudaPlans, ChunksAreSpreadWhereItemsAreFew) {
  const std::vector<int32_t> table(64);
  const Segment long_one = {table.data(), 0, 1, 1999};
  const Attention call = attention_call(geometry(128), {&long_one, 1}, 8, 227 << 10);
  Items<AttentionItem> items;
  attention_items(geometry(128), {&long_one, 1}, 8, call.queries_max, items);
  const AttentionPlan plan = plan_of(call, items.items);
  EXPECT_EQ(plan.launch.z, 16u);
  EXPECT_EQ(plan.chunks_max, 16u);
  EXPECT_EQ(plan.partial_floats, 2u * 16u * 4u * 130u);
  // 128 blocks of 396 at a time: three parts each.
  EXPECT_EQ(plan_attention(call, {64, 16}, 132).launch.z, 3u);
  EXPECT_EQ(plan_attention(call, {2000, 16}, 132).launch.z, 1u);
  EXPECT_EQ(plan_attention(call, {1, 1}, 132).launch.z, 1u);
}

/// Each chunk of an item is one part's, whatever the parts.
TEST(CudaPlans, PartsCoverTheChunksOnce) {
  AttentionCall call;
  call.heads = call.kv_heads = 1;
  const AttentionItem item = {.first_position = 1000, .queries = 1};
  for (call.parts = 1; call.parts < 20; ++call.parts) {
    EXPECT_EQ(call.first_chunk_of_part(item, 0), 0u);
    EXPECT_EQ(call.first_chunk_of_part(item, call.parts), 8u);
    for (uint32_t part = 0; part < call.parts; ++part) {
      EXPECT_LE(call.first_chunk_of_part(item, part), call.first_chunk_of_part(item, part + 1));
    }
  }
}

/// What is reserved for a step's sizes is enough for any plan of it.
TEST(CudaPlans, SpreadChunksStayWithinTheirMemory) {
  const StepSizes sizes = {
      .rows = 256, .segments = 64, .positions = 8192, .heads = 8, .geometry = geometry(128)};
  const std::vector<int32_t> table(256);
  for (const uint32_t rows : {1u, 4u, 8u, 32u}) {
    const Segment segment = {table.data(), 0, rows, 4000};
    const Attention call = attention_call(sizes.geometry, {&segment, 1}, 8, 227 << 10);
    for (uint32_t items = 1; items < 2000; items *= 3) {
      EXPECT_LE(plan_attention(call, {items, 64}, 132).partial_floats,
                partial_floats_max(sizes, 132))
          << rows << ' ' << items;
    }
  }
}

TEST(CudaPlans, PlanesOfAMatrixDoNotOverlap) {
  const UnitLayout layout(WeightType::q5_k, 100, 512);
  EXPECT_EQ(layout.tiles, 7u);
  EXPECT_EQ(layout.units, 8u);
  EXPECT_EQ(layout.high_at, 7u * 8u * 512u);
  EXPECT_EQ(layout.scales_at, layout.high_at + 7u * 8u * 128u);
  EXPECT_EQ(layout.tops_at, layout.scales_at + 7u * 8u * 64u);
  EXPECT_EQ(layout.row_scales_at, layout.tops_at + 1024u);  // 7 * 2 * 64, rounded up
  EXPECT_EQ(layout.bytes, layout.row_scales_at + 512u);     // 7 * 16 * 4, rounded up
}

/// Equal bytes stay where they are; the ring comes round and grows without touching what is in use.
TEST(CudaPlans, StagedBytesArriveWhateverTheRing) {
  const auto device = make_emulated_device();
  Staging staging(*device, 2048);
  Staging::Slot slots[3];
  const auto read = [&](const int32_t* at, size_t count) {
    std::vector<int32_t> out(count);
    device->copy_out(reinterpret_cast<std::byte*>(out.data()),
                     reinterpret_cast<const std::byte*>(at), count * sizeof(int32_t));
    return out;
  };
  for (int32_t turn = 0; turn < 40; ++turn) {
    const std::vector<int32_t> ids(1 + turn * 7 % 60, turn);
    const std::vector<int32_t> tables(turn == 30 ? 3000 : 5, -turn);
    const int32_t* const at = staging.put(slots[0], std::span<const int32_t>(ids));
    EXPECT_EQ(read(at, ids.size()), ids) << turn;
    const auto [first, second] =
        staging.put(slots[1], std::span<const int32_t>(ids), std::span<const int32_t>(tables));
    EXPECT_EQ(read(first, ids.size()), ids) << turn;
    EXPECT_EQ(read(second, tables.size()), tables) << turn;
    EXPECT_EQ(staging.put(slots[1], std::span<const int32_t>(ids), std::span<const int32_t>(tables))
                  .first,
              first);
  }
}

TEST(CudaPlansDeathTest, TheHostCannotTouchTheDevicesMemory) {
  const auto device = make_emulated_device();
  const Ops::Buffer buffer = device->allocate(64);
  EXPECT_DEATH(buffer[0] = std::byte{1}, "");
}

}  // namespace
}  // namespace outrider::kernels::cuda
