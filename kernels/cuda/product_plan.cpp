#include "kernels/cuda/product_plan.hpp"

#include <algorithm>
#include <bit>

namespace outrider::kernels::cuda {
namespace {

constexpr uint32_t k_many_tiles = ManyRows<WeightType::q8_0, 16>::k_tiles;

uint32_t ceil_div(uint32_t a, uint32_t b) {
  return (a + b - 1) / b;
}

/// Numbers the targets' groups of `tiles` tiles through; returns all of them.
uint32_t number_tiles(Products& call, uint32_t tiles) {
  uint32_t all = 0;
  for (uint32_t i = 0; i < call.count; ++i) {
    call.targets[i].first = all;
    all += ceil_div(call.targets[i].w.tiles, tiles);
  }
  return all;
}

void plan_few(ProductPlan& plan, uint32_t multiprocessors) {
  Products& call = plan.call;
  const uint32_t tiles = number_tiles(call, 1);
  call.blocks = plan.launch.x = std::min(tiles, 2 * multiprocessors);
  call.segments_reciprocal = UINT32_MAX / call.segments() + uint64_t{1};
  const uint32_t segments_of_block = ceil_div(tiles, call.blocks) * call.segments();
  with_weight_type(call.weight_type, [&]<WeightType type>() {
    call.warps = std::min(FewRows<type>::k_warps, segments_of_block);
    plan.launch.threads = 32 * call.warps;
    plan.launch.shared_bytes = FewRows<type>::k_shared_bytes;
  });
}

/// Few blocks share out their segments, as far as the memory for them goes.
void plan_many(ProductPlan& plan, uint32_t multiprocessors) {
  Products& call = plan.call;
  ManyProducts many;
  many.nt = plan.nt = tile_rows(call.m) / 8;
  plan.launch.x = ceil_div(call.m, tile_rows(call.m));
  plan.launch.y = number_tiles(call, k_many_tiles);
  with_weight_type(call.weight_type, [&]<WeightType type>() {
    with_many_rows<type>(many, [&]<class Kernel>(const Kernel&) {
      plan.launch.threads = Kernel::k_threads;
      plan.launch.shared_bytes = Kernel::k_shared_bytes;
    });
  });
  const uint32_t segments = call.segments();
  const uint32_t blocks = plan.launch.x * plan.launch.y;
  size_t floats = 0;
  uint32_t outputs_max = 0;
  for (uint32_t i = 0; i < call.count; ++i) {
    call.targets[i].workspace_at = floats;
    floats += size_t{segments} * call.m * call.targets[i].w.outputs;
    outputs_max = std::max(outputs_max, call.targets[i].w.outputs);
  }
  call.segments_of_block = segments;
  if (2 * blocks > multiprocessors || segments < 2 || floats > k_workspace_floats_max) return;
  const uint32_t parts = std::min(segments, ceil_div(multiprocessors, blocks));
  call.segments_of_block = ceil_div(segments, parts);
  plan.launch.z = ceil_div(segments, call.segments_of_block);
  plan.workspace_floats = floats;
  plan.add = {.x = ceil_div(outputs_max, AddSegments::k_threads),
              .y = call.m,
              .z = call.count,
              .threads = AddSegments::k_threads};
}

}  // namespace

ProductPlan plan_products(const Products& call, uint32_t multiprocessors) {
  ProductPlan plan;
  plan.call = call;
  plan.few = call.m <= k_few_rows_max;
  if (plan.few) {
    plan_few(plan, multiprocessors);
  } else {
    plan_many(plan, multiprocessors);
  }
  return plan;
}

size_t products_shared_bytes_max() {
  size_t most = 0;
  for (uint32_t i = 0; i <= static_cast<uint32_t>(WeightType::bf16); ++i) {
    const auto type = static_cast<WeightType>(i);
    if (weight_type_info(type) == nullptr) continue;
    with_weight_type(type, [&]<WeightType t>() {
      most = std::max({most, FewRows<t>::k_shared_bytes, ManyRows<t, 16>::k_shared_bytes});
    });
  }
  return most;
}

size_t workspace_floats_max(size_t units, uint32_t multiprocessors) {
  const size_t segments = (units + k_segment_units - 1) / k_segment_units;
  const size_t block_floats = size_t{k_tile_rows_max} * k_many_tiles * k_tile_outputs;
  return std::min(k_workspace_floats_max, segments * (multiprocessors / 2) * block_floats);
}

uint32_t tile_rows(uint32_t m) {
  return std::clamp(std::bit_ceil(m), k_few_rows_max, k_tile_rows_max);
}

uint32_t padded_rows(uint32_t m) {
  return ceil_div(m, tile_rows(m)) * tile_rows(m);
}

}  // namespace outrider::kernels::cuda
