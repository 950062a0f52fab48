#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/cpu/attention_plan.hpp"
#include "kernels/cpu/buffer.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/matmul_call.hpp"
#include "kernels/cpu/rope_table.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/kv_block.hpp"
#include "kernels/kv_codec.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {
namespace {

/// Elements of a row-wise operation that are worth waking a thread for.
constexpr size_t k_elements_per_item = 16'384;
/// Up to so many rows reading the weights is what takes the time: each thread gets one long stream
/// of each matrix.
constexpr size_t k_streaming_rows = 32;
/// Up to so many rows each thread quantises for itself, if it has so many outputs to compute with
/// them: to exchange them would take longer.
constexpr size_t k_own_rows = 8;
constexpr size_t k_own_outputs = 160;
/// From so many rows on products use planes, where the instruction set has them: full tiles.
constexpr size_t k_planes_from_rows = k_plane_rows;

KvLayer kv_layer(const KvGeometry& g, uint32_t layer, std::byte* pool) {
  return {.pool = pool + layer * g.layer_bytes(),
          .block_bytes = g.block_bytes(),
          .block_tiles = g.block_tokens / k_tile_positions,
          .head_bytes = g.head_k_bytes() + g.head_v_bytes(),
          .v_at = g.head_k_bytes(),
          .kv_heads = g.kv_heads,
          .head_dim = g.head_dim,
          .k_kind = g.k_kind,
          .v_kind = g.v_kind,
          .k_tile_bytes = kv_tile_bytes(g.k_kind, g.head_dim),
          .v_tile_bytes = kv_tile_bytes(g.v_kind, g.head_dim),
          .k_codebook = kv_codebook(g.k_kind).data(),
          .v_codebook = kv_codebook(g.v_kind).data()};
}

class CpuOps final : public Ops {
 public:
  CpuOps(uint32_t threads, const KernelTable& kernels, std::string_view name,
         std::vector<uint32_t> cpus = {})
      : name_(name), kernels_(kernels), pool_(threads, std::move(cpus)) {
    describe();
  }

  std::string_view numerics_class() const override { return "cpu-int16-2"; }
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
  void reserve(const StepSizes&) override {}
  void wait() override {}
  bool shares_host_memory() const override { return true; }
  void upload(std::span<const std::byte> from, std::byte* to) override {
    std::memcpy(to, from.data(), from.size());
  }
  void download(const std::byte* from, std::span<std::byte> to) override {
    std::memcpy(to.data(), from, to.size());
  }
  Buffer allocate_host(size_t bytes) override { return allocate(bytes); }
  void start_download(const std::byte* from, std::span<std::byte> to) override {
    download(from, to);
  }

  std::unique_ptr<Matrix> pack(const WeightView& weights) override {
    return std::make_unique<PackedMatrix>(weights, pool_);
  }
  std::string_view packing() const override { return k_panel_packing; }
  std::unique_ptr<Matrix> adopt(const WeightView& shape, size_t bytes,
                                std::shared_ptr<const std::byte> packed) override {
    auto matrix = std::make_unique<PackedMatrix>(shape, std::move(packed));
    if (matrix->bytes() != bytes) return nullptr;
    return matrix;
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

  void gather(const float* x, std::span<const uint32_t> rows, size_t width, float* out) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(x + rows[i] * width, width, out + i * width);
    }
  }

  void matmul(const Rows& rows, size_t m, std::span<const Product> products) override;
  void rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
            size_t head_dim, float* x) override;
  void kv_append(const KvGeometry& geometry, uint32_t layer, std::span<const Segment> segments,
                 const float* k, const float* v, std::byte* pool) override;
  void attention(const KvGeometry& geometry, uint32_t layer, std::span<const Segment> segments,
                 const float* q, size_t heads, float scale, const std::byte* pool,
                 float* out) override;

  void copy_block(const KvGeometry& geometry, int32_t from, int32_t to, std::byte* pool) override {
    const size_t bytes = geometry.block_bytes();
    std::memcpy(pool + static_cast<size_t>(to) * bytes, pool + static_cast<size_t>(from) * bytes,
                bytes);
  }
  void read_block(const KvGeometry& geometry, int32_t block, const std::byte* pool, std::byte* k,
                  std::byte* v) override {
    split_block(geometry, block, pool, k, v);
  }
  void write_block(const KvGeometry& geometry, int32_t block, const std::byte* k,
                   const std::byte* v, std::byte* pool) override {
    join_block(geometry, block, k, v, pool);
  }

 private:
  void describe() {
    description_ = "cpu " + name_ + ", " + std::to_string(threads()) +
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

  void quantize_row(const Rows& rows, size_t i, size_t k, CodedRows& out) {
    kernels_.quantize_row(rows.x + i * k, rows.norm, rows.eps, k, out.codes.data() + i * k,
                          out.sums.data() + i * (k / k_sum_group), &out.scales[i]);
  }
  QuantizedRows quantize_shared(const Rows& rows, size_t m, size_t k);
  MatmulCall prepare(const Rows& rows, size_t m, std::span<const Product> products);
  void stream(const Rows& rows, size_t m, const MatmulCall& call);
  bool is_fused(const Product& product) const;

  std::string name_;
  const KernelTable& kernels_;
  ThreadPool pool_;
  AttentionPlan plan_;
  std::string description_;
  CodedRows shared_rows_;
  std::vector<CodedRows> own_rows_;  ///< by share of a call
  std::vector<float> normed_rows_;
  std::vector<float> up_rows_;
};

/// Many rows also as planes, if the instruction set has a use for them: 16 rows a thread, since
/// they share cache lines.
QuantizedRows CpuOps::quantize_shared(const Rows& rows, size_t m, size_t k) {
  CodedRows& out = shared_rows_;
  out.reserve(m, k);
  QuantizedRows view = out.view();
  if (kernels_.split_row == nullptr || m < k_planes_from_rows) {
    for_rows(m, k, [&](size_t i) { quantize_row(rows, i, k, out); });
    return view;
  }
  out.reserve_planes(m, k);
  pool_.parallel_for(ceil_div(m, k_plane_rows), [&](size_t tile) {
    const size_t first = tile * k_plane_rows;
    for (size_t i = first; i < std::min(m, first + k_plane_rows); ++i) {
      quantize_row(rows, i, k, out);
      kernels_.split_row(view.codes + i * k, view.sums + i * (k / k_sum_group), k, i - first,
                         out.planes.get() + tile * CodedRows::planes_stride(k));
    }
  });
  view.planes = out.planes.get();
  return view;
}

/// Gate and up in one pass; otherwise one after the other.
bool CpuOps::is_fused(const Product& product) const {
  const auto& gate = static_cast<const PackedMatrix&>(*product.w);
  const auto& up = static_cast<const PackedMatrix&>(*product.up);
  return gate.kind() == up.kind() && panel_layout(gate.kind()).super != 0;
}

MatmulCall CpuOps::prepare(const Rows& rows, size_t m, std::span<const Product> products) {
  MatmulCall call;
  size_t separate_up = 0;
  for (const Product& p : products) {
    if (p.up != nullptr && !is_fused(p)) separate_up += m * p.up->rows();
  }
  if (up_rows_.size() < separate_up) up_rows_.resize(separate_up);
  float* up_rows = up_rows_.data();
  for (const Product& p : products) {
    OUTRIDER_CHECK(p.up == nullptr || (p.bias == nullptr && !p.accumulate));
    if (p.up == nullptr || is_fused(p)) {
      call.add(*p.w, p.up, p, p.y);
      continue;
    }
    call.add(*p.w, nullptr, p, p.y);
    call.add(*p.up, nullptr, p, up_rows);
    up_rows += m * p.up->rows();
  }
  const size_t k = call.jobs[0].args.k;
  const float* x = rows.x;
  if (call.any_float && rows.norm != nullptr) {
    if (normed_rows_.size() < m * k) normed_rows_.resize(m * k);
    for_rows(m, k, [&](size_t i) {
      kernels_.rms_norm(x + i * k, rows.norm, rows.eps, k, normed_rows_.data() + i * k);
    });
    x = normed_rows_.data();
  }
  for (size_t i = 0; i < call.count; ++i) call.jobs[i].args.x = x;
  return call;
}

/// Each thread takes its share of every product, one stream of weights after the other.
void CpuOps::stream(const Rows& rows, size_t m, const MatmulCall& call) {
  const size_t k = call.jobs[0].args.k;
  const size_t shares =
      std::clamp<size_t>(16 * call.panels() * k * m / k_products_per_item, 1, threads());
  const bool own = m <= k_own_rows && 16 * call.panels() >= shares * k_own_outputs;
  if (own_rows_.size() < shares) own_rows_.resize(shares);
  for (size_t share = 0; call.any_coded && own && share < shares; ++share) {
    own_rows_[share].reserve(m, k);
  }
  QuantizedRows shared;
  if (call.any_coded && !own) shared = quantize_shared(rows, m, k);
  pool_.parallel_for(shares, [&](size_t share) {
    for (size_t i = 0; call.any_coded && own && i < m; ++i) {
      quantize_row(rows, i, k, own_rows_[share]);
    }
    for (size_t i = 0; i < call.count; ++i) {
      MatmulArgs args = call.jobs[i].args;
      args.rows = own ? own_rows_[share].view() : shared;
      kernels_.matmul(args, {0, m}, call.jobs[i].share(share, shares));
    }
  });
}

void CpuOps::matmul(const Rows& rows, size_t m, std::span<const Product> products) {
  OUTRIDER_CHECK(!products.empty() && products.size() <= k_products_max, products.size());
  if (m == 0) return;
  MatmulCall call = prepare(rows, m, products);
  if (m <= k_streaming_rows) {
    stream(rows, m, call);
  } else {
    QuantizedRows shared;
    if (call.any_coded) shared = quantize_shared(rows, m, call.jobs[0].args.k);
    size_t items = 0;
    for (size_t i = 0; i < call.count; ++i) {
      call.jobs[i].args.rows = shared;
      call.jobs[i].plan_items(m, threads());
      items += call.jobs[i].items();
    }
    pool_.parallel_for(items, [&](size_t i) {
      const MatmulJob* job = call.jobs;
      while (i >= job->items()) i -= job++->items();
      kernels_.matmul(job->args, job->rows(i, m), job->panels(i));
    });
  }
  const float* up_rows = up_rows_.data();
  for (const Product& p : products) {
    if (p.up == nullptr || is_fused(p)) continue;
    const size_t n = p.w->rows();
    for_rows(m, n,
             [&](size_t i) { kernels_.swiglu(p.y + i * n, up_rows + i * n, n, p.y + i * n); });
    up_rows += m * n;
  }
}

void CpuOps::rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
                  size_t head_dim, float* x) {
  const auto& rope = static_cast<const CpuRopeTable&>(table);
  OUTRIDER_CHECK(rope.rotary_dim() <= head_dim, rope.rotary_dim(), head_dim);
  OUTRIDER_CHECK(!rope.hadamard() || std::has_single_bit(head_dim), head_dim);
  const auto rotate =
      rope.style() == RopeParams::Style::adjacent ? kernels_.rope_adjacent : kernels_.rope_halves;
  for_rows(m, heads * head_dim, [&](size_t i) {
    const auto position = static_cast<size_t>(positions[i]);
    OUTRIDER_CHECK(position < rope.positions(), positions[i]);
    for (size_t h = 0; h < heads; ++h) {
      float* head = x + (i * heads + h) * head_dim;
      rotate(rope.cosine(position), rope.sine(position), rope.rotary_dim(), head);
      if (rope.hadamard()) kernels_.hadamard(head_dim, head);
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
  plan_.build(geometry, segments, heads, threads());
  // The kernels only read through the pool's pointer here; one struct serves reading and appending.
  const AttentionArgs args = {.kv = kv_layer(geometry, layer, const_cast<std::byte*>(pool)),
                              .units = plan_.units().data(),
                              .q = q,
                              .out = out,
                              .heads = heads,
                              .scale = scale};
  pool_.parallel_for(plan_.runs().size(), [&](size_t i) {
    const Range run = plan_.runs()[i];
    kernels_.attend(args, plan_.items().data() + run.begin, run.end - run.begin);
  });
  pool_.parallel_for(plan_.split_units().size(), [&](size_t i) {
    kernels_.combine(args, plan_.units()[plan_.split_units()[i]]);
  });
}

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(uint32_t threads, Isa isa, std::vector<uint32_t> cpus) {
  const auto isas = available_isas();
  OUTRIDER_CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), isa_name(isa));
  return std::make_unique<CpuOps>(threads, kernels_of(isa), isa_name(isa), std::move(cpus));
}

std::unique_ptr<Ops> make_cpu_ops(uint32_t threads, const KernelTable& kernels,
                                  std::string_view name) {
  return std::make_unique<CpuOps>(threads, kernels, name);
}

Result<std::unique_ptr<Ops>> open_cpu_ops(uint32_t threads, Isa isa, std::vector<uint32_t> cpus) {
  try {
    return make_cpu_ops(threads, isa, std::move(cpus));
  } catch (const std::runtime_error& error) {
    return fail(ErrorCode::io, std::string("threads: ") + error.what(), "threads");
  }
}

}  // namespace outrider::kernels
