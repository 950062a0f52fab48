#include "kernels/cuda/cuda_ops.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "kernels/cpu/rope_table.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/cuda/attention_items.hpp"
#include "kernels/cuda/pack_units.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "kernels/cuda/staging.hpp"
#include "kernels/cuda/step_graphs.hpp"

namespace outrider::kernels::cuda {
namespace {

constexpr size_t k_staging_bytes = size_t{4} << 20;

uint32_t ceil_div(size_t a, size_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

class CudaMatrix final : public Matrix {
 public:
  CudaMatrix(const WeightView& shape, const UnitLayout& layout, Ops::Buffer memory)
      : type_(shape.type),
        rows_(shape.rows),
        cols_(shape.cols),
        layout_(layout),
        memory_(std::move(memory)) {}

  size_t rows() const override { return rows_; }
  size_t cols() const override { return cols_; }
  std::span<const std::byte> packed() const override { return {}; }
  size_t bytes() const override { return layout_.bytes; }

  WeightType type() const { return type_; }
  MatrixView view() const { return layout_.view(memory_.get(), rows_); }

 private:
  WeightType type_;
  size_t rows_;
  size_t cols_;
  UnitLayout layout_;
  Ops::Buffer memory_;
};

const CudaMatrix& own(const Matrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix);
}

struct CudaRopeTable final : RopeTable {
  explicit CudaRopeTable(Ops::Buffer memory) : values(std::move(memory)) {}

  Ops::Buffer values;  ///< [positions][rotary_dim] float: cosines, then sines
  RopeParams::Style style = RopeParams::Style::adjacent;
  uint32_t rotary_dim = 0;
  uint32_t positions = 0;
  bool hadamard = false;
};

/// Keys and values of a block: a row is those of one head in one layer, keys before values.
struct BlockRows {
  explicit BlockRows(const KvGeometry& geometry) {
    const size_t heads = size_t{geometry.layers} * geometry.kv_heads;
    const size_t pitch = geometry.head_k_bytes() + geometry.head_v_bytes();
    k = {.width = geometry.head_k_bytes(), .rows = heads, .pitch = pitch};
    v = {.width = geometry.head_v_bytes(), .rows = heads, .pitch = pitch};
  }
  StridedRows k, v;
};

class CudaOps final : public Ops, private RowSampler {
 public:
  CudaOps(std::unique_ptr<Device> device, uint32_t threads, std::vector<uint32_t> cpus)
      : device_(std::move(device)),
        numerics_("cuda-f16-3 " + device_->traits().numerics),
        pool_(threads, std::move(cpus)),
        staging_(*device_, k_staging_bytes),
        halves_(*device_, growths_),
        inverse_(*device_, growths_),
        up_(*device_, growths_),
        workspace_(*device_, growths_),
        partial_(*device_, growths_),
        graphs_(*device_, staging_, growths_) {
    describe();
  }
  ~CudaOps() override { device_->synchronize(); }

  std::string_view numerics_class() const override { return numerics_; }
  std::string_view description() const override { return description_; }
  uint32_t threads() const override { return pool_.threads(); }
  void set_threads(uint32_t threads) override {
    pool_.set_threads(threads);
    describe();
  }
  void parallel_for(size_t count, const std::function<void(size_t)>& body) override {
    pool_.parallel_for(count, body);
  }

  bool shares_host_memory() const override { return false; }
  Buffer allocate(size_t bytes) override { return device_->allocate(bytes); }
  void upload(std::span<const std::byte> from, std::byte* to) override {
    device_->copy_in(to, from.data(), from.size());
  }
  void download(const std::byte* from, std::span<std::byte> to) override {
    device_->copy_out(to.data(), from, to.size());
  }
  Buffer allocate_host(size_t bytes) override { return device_->allocate_host(bytes); }
  void start_download(const std::byte* from, std::span<std::byte> to) override {
    device_->start_copy_out(to.data(), from, to.size());
  }

  std::unique_ptr<Matrix> pack(const WeightView& weights) override;
  std::string_view packing() const override { return "cuda units of 16 x 64, 2"; }
  std::unique_ptr<Matrix> adopt(const WeightView& shape, size_t bytes,
                                std::shared_ptr<const std::byte> packed) override;
  std::unique_ptr<RopeTable> make_rope_table(const RopeParams& params, uint32_t positions) override;

  void reserve(const StepSizes& sizes) override;
  void wait() override { device_->synchronize(); }
  bool begin_step(const Step& step) override { return graphs_.begin(step); }
  bool end_step() override { return graphs_.end(); }

  void embed(const Matrix& table, std::span<const int32_t> ids, float* out) override;
  RowSampler* sampler() override { return this; }
  void gather(const float* x, std::span<const uint32_t> rows, size_t width, float* out) override;
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
    device_->copy_within(pool + static_cast<size_t>(to) * bytes,
                         pool + static_cast<size_t>(from) * bytes, bytes);
  }
  void read_block(const KvGeometry& geometry, int32_t block, const std::byte* pool, std::byte* k,
                  std::byte* v) override;
  void write_block(const KvGeometry& geometry, int32_t block, const std::byte* k,
                   const std::byte* v, std::byte* pool) override;
  std::unique_ptr<Copy> start_read_block(const KvGeometry& geometry, int32_t block,
                                         const std::byte* pool, std::byte* k,
                                         std::byte* v) override;
  std::unique_ptr<Copy> start_write_block(const KvGeometry& geometry, int32_t block,
                                          const std::byte* k, const std::byte* v,
                                          std::byte* pool) override;

 private:
  void sample(const float* logits, size_t vocabulary, std::span<const RowDraw> draws,
              int32_t* chosen) override;
  void describe() {
    description_ = device_->traits().name + ", " + std::to_string(threads()) +
                   (threads() == 1 ? " host thread" : " host threads");
  }
  /// Those that a call computes: a step's are padded.
  uint32_t rows_of(size_t called) const {
    const StepInputs* const step = graphs_.inputs();
    return step != nullptr ? step->rows : static_cast<uint32_t>(called);
  }
  /// The rows of a call as products take them: fills what all its launches share.
  void prepare(const Rows& rows, size_t m, size_t k, Products& call);
  void run_products(const Products& call);

  std::unique_ptr<Device> device_;
  std::string numerics_;
  std::string description_;
  ThreadPool pool_;
  Staging staging_;
  Staging::Slot ids_, draws_, gathered_, positions_, append_slot_, attention_slot_;
  uint64_t growths_ = 0;
  DeviceScratch halves_, inverse_, up_, workspace_, partial_;
  StepGraphs graphs_;
  Items<AttentionItem> attention_;
  Items<AppendItem> append_;
};

std::unique_ptr<Matrix> CudaOps::pack(const WeightView& weights) {
  const UnitLayout layout(weights.type, weights.rows, weights.cols);
  std::vector<std::byte> packed(layout.bytes);
  pool_.parallel_for(layout.tiles, [&](size_t tile) {
    pack_tile(weights, layout, static_cast<uint32_t>(tile), packed.data());
  });
  Buffer memory = device_->allocate(layout.bytes);
  device_->copy_in(memory.get(), packed.data(), packed.size());
  return std::make_unique<CudaMatrix>(weights, layout, std::move(memory));
}

std::unique_ptr<Matrix> CudaOps::adopt(const WeightView& shape, size_t bytes,
                                       std::shared_ptr<const std::byte> packed) {
  const UnitLayout layout(shape.type, shape.rows, shape.cols);
  if (layout.bytes != bytes) return nullptr;
  Buffer memory = device_->allocate(bytes);
  device_->copy_in(memory.get(), packed.get(), bytes);
  return std::make_unique<CudaMatrix>(shape, layout, std::move(memory));
}

std::unique_ptr<RopeTable> CudaOps::make_rope_table(const RopeParams& params, uint32_t positions) {
  const CpuRopeTable values(params, positions, pool_);
  const size_t bytes = size_t{positions} * params.rotary_dim * sizeof(float);
  auto table = std::make_unique<CudaRopeTable>(device_->allocate(bytes));
  device_->copy_in(table->values.get(), reinterpret_cast<const std::byte*>(values.cosine(0)),
                   bytes);
  table->style = params.style;
  table->rotary_dim = params.rotary_dim;
  table->positions = positions;
  table->hadamard = params.hadamard;
  return table;
}

void CudaOps::reserve(const StepSizes& sizes) {
  const size_t rows = sizes.rows, columns = ceil_div(sizes.columns, k_unit_k) * size_t{k_unit_k};
  const uint32_t multiprocessors = device_->traits().multiprocessors;
  const size_t padded = std::max(padded_rows(sizes.rows), k_tile_rows_max);
  halves_.take<uint16_t>(padded * columns);
  inverse_.take<float>(rows);
  up_.take<float>(rows * sizes.gated);
  workspace_.take<float>(workspace_floats_max(columns / k_unit_k, multiprocessors));
  partial_.take<float>(partial_floats_max(sizes, multiprocessors));
  staging_.reserve(step_items_bytes_max(sizes));
  graphs_.reserve(sizes);
}

void CudaOps::embed(const Matrix& table, std::span<const int32_t> ids, float* out) {
  if (ids.empty()) return;
  const CudaMatrix& matrix = own(table);
  for (const int32_t id : ids) {
    OUTRIDER_CHECK(id >= 0 && static_cast<size_t>(id) < matrix.rows(), id);
  }
  Embed kernel;
  kernel.weight_type = matrix.type();
  kernel.table = matrix.view();
  const StepInputs* const step = graphs_.inputs();
  kernel.ids = step != nullptr ? step->ids : staging_.put(ids_, ids);
  kernel.k = static_cast<uint32_t>(matrix.cols());
  kernel.out = out;
  device_->run({.x = rows_of(ids.size()), .threads = Embed::k_threads}, kernel);
}

void CudaOps::sample(const float* logits, size_t vocabulary, std::span<const RowDraw> draws,
                     int32_t* chosen) {
  if (draws.empty()) return;
  const SampleRows kernel = {.logits = logits,
                             .draws = staging_.put(draws_, draws),
                             .vocabulary = static_cast<uint32_t>(vocabulary),
                             .chosen = chosen};
  device_->run({.x = static_cast<uint32_t>(draws.size()),
                .threads = SampleRows::k_threads,
                .shared_bytes = SampleRows::k_shared_bytes},
               kernel);
}

void CudaOps::gather(const float* x, std::span<const uint32_t> rows, size_t width, float* out) {
  if (rows.empty()) return;
  const Gather kernel = {.x = x,
                         .rows = staging_.put(gathered_, rows),
                         .width = static_cast<uint32_t>(width),
                         .out = out};
  device_->run({.x = static_cast<uint32_t>(rows.size()), .threads = Gather::k_threads}, kernel);
}

void CudaOps::prepare(const Rows& rows, size_t m, size_t k, Products& call) {
  PrepareRows kernel;
  kernel.x = rows.x;
  kernel.norm = rows.norm;
  kernel.eps = rows.eps;
  kernel.k = static_cast<uint32_t>(k);
  kernel.tiles = {.tile_rows = tile_rows(static_cast<uint32_t>(m)), .units = ceil_div(k, k_unit_k)};
  const size_t padded = size_t{padded_rows(static_cast<uint32_t>(m))} * kernel.tiles.units;
  kernel.halves = halves_.take<uint16_t>(padded * k_unit_k);
  kernel.inverse = inverse_.take<float>(m);
  device_->run({.x = static_cast<uint32_t>(m),
                .threads = PrepareRows::k_threads,
                .shared_bytes = PrepareRows::k_shared_bytes},
               kernel);
  call.m = static_cast<uint32_t>(m);
  call.units = kernel.tiles.units;
  call.x = kernel.halves;
  call.inverse = kernel.inverse;
}

void CudaOps::run_products(const Products& call) {
  const ProductPlan plan = plan_products(call, device_->traits().multiprocessors);
  if (plan.few) {
    FewProducts few;
    static_cast<Products&>(few) = plan.call;
    device_->run(plan.launch, few);
    return;
  }
  ManyProducts many;
  static_cast<Products&>(many) = plan.call;
  many.nt = plan.nt;
  if (plan.workspace_floats > 0) many.workspace = workspace_.take<float>(plan.workspace_floats);
  device_->run(plan.launch, many);
  if (many.workspace != nullptr) device_->run(plan.add, AddSegments(many));
}

void CudaOps::matmul(const Rows& rows, size_t m, std::span<const Product> products) {
  OUTRIDER_CHECK(!products.empty() && products.size() <= k_products_max, products.size());
  if (m == 0) return;
  m = rows_of(m);
  struct Target {
    const CudaMatrix* matrix;
    ProductTarget target;
  };
  Target targets[k_targets_max];
  size_t count = 0, up_floats = 0;
  for (const Product& p : products) {
    if (p.up != nullptr) up_floats += m * p.up->rows();
  }
  float* up = up_floats > 0 ? up_.take<float>(up_floats) : nullptr;
  for (const Product& p : products) {
    OUTRIDER_CHECK(p.up == nullptr || (p.bias == nullptr && !p.accumulate));
    const auto add = [&](const Matrix& w, float* y) {
      OUTRIDER_CHECK(w.cols() == products[0].w->cols(), w.cols());
      ProductTarget target = {.w = own(w).view(), .y = y};
      target.bias = p.bias;
      target.accumulate = p.accumulate;
      targets[count++] = {&own(w), target};
    };
    add(*p.w, p.y);
    if (p.up == nullptr) continue;
    add(*p.up, up);
    up += m * p.up->rows();
  }

  Products shared;
  prepare(rows, m, products[0].w->cols(), shared);
  const auto end = targets + count;
  for (auto rest = targets; rest != end;) {
    Products call = shared;
    call.weight_type = rest->matrix->type();
    const auto others = std::partition(
        rest, end, [&](const Target& t) { return t.matrix->type() == call.weight_type; });
    for (; rest != others; ++rest) call.targets[call.count++] = rest->target;
    run_products(call);
  }

  up = up_floats > 0 ? up_.take<float>(up_floats) : nullptr;
  for (const Product& p : products) {
    if (p.up == nullptr) continue;
    const size_t floats = m * p.w->rows();
    const Swiglu kernel = {.gate = p.y, .up = up, .out = p.y, .count = floats};
    device_->run({.x = ceil_div(floats, Swiglu::k_threads), .threads = Swiglu::k_threads}, kernel);
    up += floats;
  }
}

void CudaOps::rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
                   size_t head_dim, float* x) {
  if (m == 0) return;
  const auto& rope = static_cast<const CudaRopeTable&>(table);
  OUTRIDER_CHECK(rope.rotary_dim <= head_dim, rope.rotary_dim, head_dim);
  OUTRIDER_CHECK(!rope.hadamard || std::has_single_bit(head_dim), head_dim);
  for (size_t i = 0; i < m; ++i) {
    OUTRIDER_CHECK(positions[i] >= 0 && static_cast<uint32_t>(positions[i]) < rope.positions,
                   positions[i]);
  }
  Rope kernel;
  kernel.x = x;
  const StepInputs* const step = graphs_.inputs();
  kernel.positions =
      step != nullptr ? step->positions : staging_.put(positions_, std::span(positions, m));
  kernel.cosines = reinterpret_cast<const float*>(rope.values.get());
  kernel.heads = static_cast<uint32_t>(heads);
  kernel.head_dim = static_cast<uint32_t>(head_dim);
  kernel.rotary_dim = rope.rotary_dim;
  kernel.adjacent = rope.style == RopeParams::Style::adjacent;
  kernel.hadamard = rope.hadamard;
  kernel.shrink = 1.0f / std::sqrt(static_cast<float>(head_dim));
  device_->run({.x = kernel.heads,
                .y = rows_of(m),
                .threads = Rope::k_threads,
                .shared_bytes = kernel.shared_bytes()},
               kernel);
}

void CudaOps::kv_append(const KvGeometry& geometry, uint32_t layer,
                        std::span<const Segment> segments, const float* k, const float* v,
                        std::byte* pool) {
  KvAppend kernel;
  uint32_t items = 0;
  if (const StepInputs* const step = graphs_.inputs()) {
    items = step->append_items;
    std::tie(kernel.items, kernel.tables) = std::pair(step->append, step->tables);
  } else {
    append_items(geometry, segments, append_);
    if (append_.items.empty()) return;
    items = static_cast<uint32_t>(append_.items.size());
    std::tie(kernel.items, kernel.tables) =
        staging_.put(append_slot_, std::span<const AppendItem>(append_.items),
                     std::span<const int32_t>(append_.tables));
  }
  kernel.pool = kv_pool(geometry, layer, pool);
  kernel.keys = k;
  kernel.values = v;
  kernel.kv_heads = geometry.kv_heads;
  device_->run({.x = items, .y = geometry.kv_heads, .z = 2, .threads = KvAppend::k_threads},
               kernel);
}

void CudaOps::attention(const KvGeometry& geometry, uint32_t layer,
                        std::span<const Segment> segments, const float* q, size_t heads,
                        float scale, const std::byte* pool, float* out) {
  const DeviceTraits& traits = device_->traits();
  Attention kernel = attention_call(geometry, segments, heads, traits.shared_bytes_max);
  AttentionPlan plan;
  if (const StepInputs* const step = graphs_.inputs()) {
    plan = step->plan;
    std::tie(kernel.items, kernel.tables) = std::pair(step->attention, step->tables);
  } else {
    attention_items(geometry, segments, heads, kernel.queries_max, attention_);
    if (attention_.items.empty()) return;
    const auto items = static_cast<uint32_t>(attention_.items.size());
    plan = plan_attention(kernel, {items, chunks_of(kernel, attention_.items)},
                          traits.multiprocessors);
    std::tie(kernel.items, kernel.tables) =
        staging_.put(attention_slot_, std::span<const AttentionItem>(attention_.items),
                     std::span<const int32_t>(attention_.tables));
  }
  kernel.pool = kv_pool(geometry, layer, const_cast<std::byte*>(pool));  // only read
  kernel.q = q;
  kernel.out = out;
  kernel.scale_log2 = scale * 1.44269504f;
  kernel.chunks_max = plan.chunks_max;
  kernel.parts = plan.launch.z;
  if (plan.partial_floats > 0) kernel.partial = partial_.take<float>(plan.partial_floats);
  device_->run(plan.launch, kernel);
  if (kernel.partial == nullptr) return;
  MergeChunks merge;
  static_cast<AttentionCall&>(merge) = kernel;
  merge.queries_max = kernel.queries_max;
  device_->run({.x = plan.launch.x,
                .y = plan.launch.y,
                .z = kernel.queries_max,
                .threads = MergeChunks::k_threads},
               merge);
}

/// Keys and values of a layer's heads take turns in a block: rows that lie a head apart.
void CudaOps::read_block(const KvGeometry& geometry, int32_t block, const std::byte* pool,
                         std::byte* k, std::byte* v) {
  const BlockRows rows(geometry);
  const std::byte* const from = pool + static_cast<size_t>(block) * geometry.block_bytes();
  device_->copy_rows_out(k, from, rows.k);
  device_->copy_rows_out(v, from + rows.k.width, rows.v);
}

void CudaOps::write_block(const KvGeometry& geometry, int32_t block, const std::byte* k,
                          const std::byte* v, std::byte* pool) {
  const BlockRows rows(geometry);
  std::byte* const to = pool + static_cast<size_t>(block) * geometry.block_bytes();
  device_->copy_rows_in(to, k, rows.k);
  device_->copy_rows_in(to + rows.k.width, v, rows.v);
}

std::unique_ptr<Copy> CudaOps::start_read_block(const KvGeometry& geometry, int32_t block,
                                                const std::byte* pool, std::byte* k, std::byte* v) {
  const BlockRows rows(geometry);
  const std::byte* const from = pool + static_cast<size_t>(block) * geometry.block_bytes();
  const RowsCopy copies[] = {{k, from, rows.k}, {v, from + rows.k.width, rows.v}};
  return device_->start_rows(CopyTo::host, copies);
}

std::unique_ptr<Copy> CudaOps::start_write_block(const KvGeometry& geometry, int32_t block,
                                                 const std::byte* k, const std::byte* v,
                                                 std::byte* pool) {
  const BlockRows rows(geometry);
  std::byte* const to = pool + static_cast<size_t>(block) * geometry.block_bytes();
  const RowsCopy copies[] = {{to, k, rows.k}, {to + rows.k.width, v, rows.v}};
  return device_->start_rows(CopyTo::device, copies);
}

}  // namespace

std::unique_ptr<Ops> make_ops(std::unique_ptr<Device> device, uint32_t threads,
                              std::vector<uint32_t> cpus) {
  return std::make_unique<CudaOps>(std::move(device), threads, std::move(cpus));
}

}  // namespace outrider::kernels::cuda

namespace outrider::kernels {

Result<std::unique_ptr<Ops>> open_cuda_ops(uint32_t index, uint32_t threads,
                                           std::vector<uint32_t> cpus, bool yields) {
  try {
    auto device = cuda::open_device(index, yields);
    if (!device) return device.error();
    return cuda::make_ops(std::move(device).value(), threads, std::move(cpus));
  } catch (const std::runtime_error& error) {
    return fail(ErrorCode::io, std::string("threads: ") + error.what(), "threads");
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::io, "device: cuda:" + std::to_string(index) + " has no memory left",
                "device");
  }
}

}  // namespace outrider::kernels
