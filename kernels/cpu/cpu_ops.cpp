#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "kernels/cpu/attention_plan.hpp"
#include "kernels/cpu/buffer.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/rope_table.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {
namespace {

/// Elements of a row-wise operation that are worth waking a thread for.
constexpr size_t k_elements_per_item = 16'384;
/// Multiply-adds, likewise.
constexpr size_t k_products_per_item = 65'536;
constexpr size_t k_pieces_per_thread = 8;
/// Up to so many rows reading the weights is what takes the time: each thread gets one long stream.
constexpr size_t k_streaming_rows = 32;
/// Quantised rows that go over all weights before the next ones do: they stay in L2.
constexpr size_t k_row_block_bytes = 400'000;
/// Blocks of rows are whole tiles of any instruction set.
constexpr size_t k_tile_rows = 24;

size_t ceil_div(size_t a, size_t b) {
  return (a + b - 1) / b;
}

KvLayer kv_layer(const KvGeometry& g, uint32_t layer, std::byte* pool) {
  return {.pool = pool + layer * g.layer_bytes(),
          .block_bytes = g.block_bytes(),
          .block_tiles = g.block_tokens / k_tile_positions,
          .head_bytes = g.head_k_bytes() + g.head_v_bytes(),
          .v_at = g.head_k_bytes(),
          .kv_heads = g.kv_heads,
          .head_dim = g.head_dim,
          .k_half = g.k_kind == KvKind::fp16,
          .v_half = g.v_kind == KvKind::fp16};
}

/// One product of a call, cut into items: blocks of rows that stay in cache, times panels.
struct MatmulJob {
  MatmulArgs args;
  size_t block_rows = 0;
  size_t row_blocks = 0;
  size_t item_panels = 0;
  size_t panel_items = 0;
  size_t panel_count = 0;

  size_t items() const { return row_blocks * panel_items; }
  Range rows(size_t item, size_t m) const {
    const size_t begin = item / panel_items * block_rows;
    return {begin, std::min(m, begin + block_rows)};
  }
  Range panels(size_t item) const {
    const size_t begin = item % panel_items * item_panels;
    return {begin, std::min(panel_count, begin + item_panels)};
  }
};

MatmulJob plan_matmul(const PackedMatrix& matrix, size_t m, uint32_t threads) {
  MatmulJob job;
  const size_t fitting = k_row_block_bytes / (std::min(matrix.cols(), k_code_k) * sizeof(int16_t));
  job.row_blocks = ceil_div(m, std::min(fitting, k_code_rows_max) / k_tile_rows * k_tile_rows);
  job.block_rows = ceil_div(ceil_div(m, job.row_blocks), k_tile_rows) * k_tile_rows;
  job.row_blocks = ceil_div(m, job.block_rows);
  job.panel_count = matrix.panels();
  const size_t products = 16 * matrix.cols() * std::min(m, job.block_rows);
  const size_t pieces = m <= k_streaming_rows ? 1 : k_pieces_per_thread;
  job.item_panels = std::max(ceil_div(job.panel_count * job.row_blocks, threads * pieces),
                             k_products_per_item / products);
  job.item_panels = std::max<size_t>(2, ceil_div(job.item_panels, 2) * 2);
  job.panel_items = ceil_div(job.panel_count, job.item_panels);
  return job;
}

class CpuOps final : public Ops {
 public:
  CpuOps(uint32_t threads, Isa isa) : isa_(isa), kernels_(kernels_of(isa)), pool_(threads) {
    describe();
  }

  std::string_view numerics_class() const override { return "cpu-int16-1"; }
  std::string_view description() const override { return description_; }
  uint32_t threads() const override { return pool_.threads(); }
  void set_threads(uint32_t threads) override {
    pool_.set_threads(threads);
    describe();
  }

  void parallel_for(size_t count, const std::function<void(size_t)>& body) override {
    pool_.parallel_for(count, body);
  }

  Buffer allocate(size_t bytes) override { return make_buffer(bytes); }

  std::unique_ptr<Matrix> pack(const WeightView& weights) override {
    return std::make_unique<PackedMatrix>(weights, pool_);
  }
  std::unique_ptr<RopeTable> make_rope_table(const RopeParams& params,
                                             uint32_t positions) override {
    return std::make_unique<CpuRopeTable>(params, positions, pool_);
  }

  void embed(const Matrix& table, std::span<const int32_t> ids, float* out) override {
    const auto& matrix = static_cast<const PackedMatrix&>(table);
    for_rows(ids.size(), matrix.cols(), [&](size_t i) {
      const auto id = static_cast<size_t>(ids[i]);
      OUTRIDER_CHECK(id < matrix.rows(), ids[i]);
      matrix.read_row(id, out + i * matrix.cols());
    });
  }

  void rms_norm(const float* x, const float* weight, float eps, size_t m, size_t d,
                float* out) override {
    for_rows(m, d, [&](size_t i) { kernels_.rms_norm(x + i * d, weight, eps, d, out + i * d); });
  }

  void matmul(const float* x, size_t m, std::span<const Product> products) override;
  void rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
            size_t head_dim, float* x) override;
  void kv_append(const KvGeometry& geometry, uint32_t layer, std::span<const Segment> segments,
                 const float* k, const float* v, std::byte* pool) override;
  void attention(const KvGeometry& geometry, uint32_t layer, std::span<const Segment> segments,
                 const float* q, size_t heads, float scale, const std::byte* pool,
                 float* out) override;

  void swiglu(const float* gate, const float* up, size_t m, size_t d, float* out) override {
    for_rows(m, d, [&](size_t i) { kernels_.swiglu(gate + i * d, up + i * d, d, out + i * d); });
  }

  void copy_block(const KvGeometry& geometry, int32_t from, int32_t to, std::byte* pool) override {
    const size_t bytes = geometry.block_bytes();
    std::memcpy(pool + static_cast<size_t>(to) * bytes, pool + static_cast<size_t>(from) * bytes,
                bytes);
  }

 private:
  void describe() {
    description_ = "cpu " + std::string(isa_name(isa_)) + ", " + std::to_string(threads()) +
                   (threads() == 1 ? " thread" : " threads");
  }

  /// body(i) for each row, several rows an item.
  template <class Body>
  void for_rows(size_t rows, size_t row_elements, const Body& body) {
    const size_t rows_per_item = std::max<size_t>(1, k_elements_per_item / row_elements);
    pool_.parallel_for(ceil_div(rows, rows_per_item), [&](size_t item) {
      const size_t end = std::min(rows, (item + 1) * rows_per_item);
      for (size_t i = item * rows_per_item; i < end; ++i) body(i);
    });
  }

  QuantizedRows quantize(const float* x, size_t m, size_t k);

  Isa isa_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  AttentionPlan plan_;
  std::string description_;
  // Quantised rows of the current call; they only ever grow.
  std::vector<int16_t> codes_;
  std::vector<float> sums_;
  std::vector<float> scales_;
};

QuantizedRows CpuOps::quantize(const float* x, size_t m, size_t k) {
  if (codes_.size() < m * k) codes_.resize(m * k);
  const size_t groups = k / k_sum_group;
  if (sums_.size() < m * groups) sums_.resize(m * groups);
  if (scales_.size() < m) scales_.resize(m);
  for_rows(m, k, [&](size_t i) {
    kernels_.quantize_row(x + i * k, k, codes_.data() + i * k, sums_.data() + i * groups,
                          &scales_[i]);
  });
  return {codes_.data(), sums_.data(), scales_.data()};
}

void CpuOps::matmul(const float* x, size_t m, std::span<const Product> products) {
  OUTRIDER_CHECK(!products.empty() && products.size() <= k_products_max, products.size());
  if (m == 0) return;
  MatmulJob jobs[k_products_max];
  QuantizedRows rows;
  size_t items = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    const auto& matrix = static_cast<const PackedMatrix&>(*p.w);
    const bool coded = panel_layout(matrix.kind()).super != 0;
    if (coded && rows.codes == nullptr) rows = quantize(x, m, matrix.cols());
    jobs[i] = plan_matmul(matrix, m, threads());
    jobs[i].args = {.panels = matrix.data(),
                    .panel_bytes = matrix.panel_bytes(),
                    .kind = matrix.kind(),
                    .n = matrix.rows(),
                    .k = matrix.cols(),
                    .x = x,
                    .rows = rows,
                    .bias = p.bias,
                    .accumulate = p.accumulate,
                    .y = p.y};
    items += jobs[i].items();
  }
  pool_.parallel_for(items, [&](size_t i) {
    const MatmulJob* job = jobs;
    while (i >= job->items()) i -= job++->items();
    kernels_.matmul(job->args, job->rows(i, m), job->panels(i));
  });
}

void CpuOps::rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
                  size_t head_dim, float* x) {
  const auto& rope = static_cast<const CpuRopeTable&>(table);
  OUTRIDER_CHECK(rope.rotary_dim() <= head_dim, rope.rotary_dim(), head_dim);
  const auto rotate =
      rope.style() == RopeParams::Style::adjacent ? kernels_.rope_adjacent : kernels_.rope_halves;
  for_rows(m, heads * head_dim, [&](size_t i) {
    const auto position = static_cast<size_t>(positions[i]);
    OUTRIDER_CHECK(position < rope.positions(), positions[i]);
    for (size_t h = 0; h < heads; ++h) {
      rotate(rope.cosine(position), rope.sine(position), rope.rotary_dim(),
             x + (i * heads + h) * head_dim);
    }
  });
}

void CpuOps::kv_append(const KvGeometry& geometry, uint32_t layer,
                       std::span<const Segment> segments, const float* k, const float* v,
                       std::byte* pool) {
  const KvLayer kv = kv_layer(geometry, layer, pool);
  const size_t row_elements = kv.kv_heads * kv.head_dim;
  for (const Segment& s : segments) {
    // Items end at multiples of 64 positions: two threads never write one cache line.
    constexpr size_t k_positions = 64;
    const size_t end = size_t{s.first_position} + s.rows;
    const size_t first_item = s.first_position / k_positions;
    pool_.parallel_for(ceil_div(end, k_positions) - first_item, [&](size_t i) {
      const size_t begin = std::max<size_t>(s.first_position, (first_item + i) * k_positions);
      const size_t stop = std::min(end, (first_item + i + 1) * k_positions);
      const size_t row = s.first_row + (begin - s.first_position);
      kernels_.kv_append(kv, s.block_table, begin, stop - begin, k + row * row_elements,
                         v + row * row_elements);
    });
  }
}

void CpuOps::attention(const KvGeometry& geometry, uint32_t layer,
                       std::span<const Segment> segments, const float* q, size_t heads, float scale,
                       const std::byte* pool, float* out) {
  OUTRIDER_CHECK(heads % geometry.kv_heads == 0, heads, geometry.kv_heads);
  OUTRIDER_CHECK(geometry.head_dim <= k_head_dim_max, geometry.head_dim);
  // The kernels only read through this pointer here; one struct serves reading and appending.
  const AttentionArgs args = {.kv = kv_layer(geometry, layer, const_cast<std::byte*>(pool)),
                              .q = q,
                              .out = out,
                              .heads = heads,
                              .scale = scale};
  plan_.build(geometry, segments, heads, threads());
  pool_.parallel_for(plan_.runs().size(), [&](size_t i) {
    const Range run = plan_.runs()[i];
    kernels_.attend(args, plan_.items().data() + run.begin, run.end - run.begin);
  });
  pool_.parallel_for(plan_.split_units().size(),
                     [&](size_t i) { kernels_.combine(args, plan_.split_units()[i]); });
}

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(uint32_t threads, Isa isa) {
  const auto isas = available_isas();
  OUTRIDER_CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), isa_name(isa));
  return std::make_unique<CpuOps>(threads, isa);
}

}  // namespace outrider::kernels
