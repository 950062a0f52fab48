#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.hpp"
#include "kernels/kv_block.hpp"
#include "kernels/kv_codec.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {
namespace {

/// The file's own bytes; rows are dequantised whenever they are used.
class RefMatrix final : public Matrix {
 public:
  explicit RefMatrix(const WeightView& view)
      : type_(view.type), rows_(view.rows), cols_(view.cols) {
    const WeightTypeInfo* info = weight_type_info(view.type);
    OUTRIDER_CHECK(info != nullptr && cols_ % info->block_elements == 0);
    row_bytes_ = cols_ / info->block_elements * info->block_bytes;
    data_.assign(view.data, view.data + rows_ * row_bytes_);
  }

  size_t rows() const override { return rows_; }
  size_t cols() const override { return cols_; }
  std::span<const std::byte> packed() const override { return data_; }

  void read_row(size_t row, float* out) const {
    dequantize(type_, data_.data() + row * row_bytes_, cols_, out);
  }

 private:
  WeightType type_;
  size_t rows_;
  size_t cols_;
  size_t row_bytes_ = 0;
  std::vector<std::byte> data_;
};

struct RefRopeTable final : RopeTable {
  RopeParams params;
  uint32_t positions = 0;
  std::vector<double> frequency;  ///< [rotary_dim / 2]
};

/// Tiles of one layer, by the layout in ops.hpp.
struct KvTiles {
  const KvGeometry& g;
  uint32_t layer;

  /// Byte offset of the tile that holds a position.
  size_t at(KvTensor tensor, const int32_t* table, size_t position, size_t kv_head) const {
    const auto block = static_cast<size_t>(table[position / g.block_tokens]);
    const size_t tile = position % g.block_tokens / 16;
    const size_t head = block * g.block_bytes() + layer * g.layer_bytes() +
                        kv_head * (g.head_k_bytes() + g.head_v_bytes());
    return tensor == KvTensor::keys
               ? head + tile * kv_tile_bytes(g.k_kind, g.head_dim)
               : head + g.head_k_bytes() + tile * kv_tile_bytes(g.v_kind, g.head_dim);
  }
  KvKind kind(KvTensor tensor) const { return tensor == KvTensor::keys ? g.k_kind : g.v_kind; }

  /// [positions, head_dim] of one head, from its tiles.
  std::vector<double> read(KvTensor tensor, const int32_t* table, size_t positions, size_t kv_head,
                           const std::byte* pool) const {
    std::vector<double> out;
    out.reserve(positions * g.head_dim);
    for (size_t t = 0; t < positions; ++t) {
      const std::byte* const tile = pool + at(tensor, table, t, kv_head);
      for (size_t d = 0; d < g.head_dim; ++d) {
        out.push_back(kv_read(kind(tensor), tensor, g.head_dim, t % 16, d, tile));
      }
    }
    return out;
  }
  void store(KvTensor tensor, const int32_t* table, size_t position, size_t kv_head, const float* x,
             std::byte* pool) const {
    kv_store(kind(tensor), tensor, g.head_dim, position % 16, x,
             pool + at(tensor, table, position, kv_head));
  }
};

/// One row of one head over the `keys` and `values` [positions, head_dim] that it sees.
void attend(std::span<const double> keys, const double* values, std::span<const float> q,
            float scale, float* out) {
  const size_t head_dim = q.size();
  std::vector<double> weights(keys.size() / head_dim, 0.0);
  for (size_t t = 0; t < weights.size(); ++t) {
    for (size_t d = 0; d < head_dim; ++d) weights[t] += q[d] * keys[t * head_dim + d];
    weights[t] *= scale;
  }
  const double highest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - highest);
  for (size_t d = 0; d < head_dim; ++d) {
    double value = 0;
    for (size_t t = 0; t < weights.size(); ++t) value += weights[t] * values[t * head_dim + d];
    out[d] = static_cast<float>(value / sum);
  }
}

class RefOps final : public Ops {
 public:
  std::string_view numerics_class() const override { return "ref-f64-1"; }
  std::string_view description() const override { return "reference in double, 1 thread"; }
  uint32_t threads() const override { return 1; }
  void set_threads(uint32_t) override {}

  void parallel_for(size_t count, const std::function<void(size_t)>& body) override {
    for (size_t i = 0; i < count; ++i) body(i);
  }

  Buffer allocate(size_t bytes) override {
    const size_t rounded = (bytes + 64) / 64 * 64;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
    OUTRIDER_CHECK(data != nullptr, bytes);
    std::memset(data, 0, rounded);
    return Buffer(data, [](std::byte* p) { std::free(p); });
  }

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
    return std::make_unique<RefMatrix>(weights);
  }
  std::string_view packing() const override { return "gguf rows"; }
  std::unique_ptr<Matrix> adopt(const WeightView& shape, size_t bytes,
                                std::shared_ptr<const std::byte> packed) override {
    const WeightTypeInfo& info = *weight_type_info(shape.type);
    if (bytes != shape.rows * (shape.cols / info.block_elements) * info.block_bytes) return nullptr;
    return pack({shape.type, packed.get(), shape.rows, shape.cols});
  }

  std::unique_ptr<RopeTable> make_rope_table(const RopeParams& params,
                                             uint32_t positions) override {
    auto table = std::make_unique<RefRopeTable>();
    table->params = params;
    table->positions = positions;
    for (uint32_t i = 0; i < params.rotary_dim / 2; ++i) {
      double frequency = std::pow(double{params.base}, -2.0 * i / params.rotary_dim);
      if (params.factors != nullptr) frequency /= params.factors[i];
      table->frequency.push_back(frequency);
    }
    table->params.factors = nullptr;
    return table;
  }

  void embed(const Matrix& table, std::span<const int32_t> ids, float* out) override {
    const auto& matrix = static_cast<const RefMatrix&>(table);
    for (const int32_t id : ids) {
      OUTRIDER_CHECK(id >= 0 && static_cast<size_t>(id) < matrix.rows(), id);
      matrix.read_row(static_cast<size_t>(id), out);
      out += matrix.cols();
    }
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
};

std::vector<float> normed(const Rows& rows, size_t m, size_t k) {
  std::vector<float> out(rows.x, rows.x + m * k);
  for (size_t i = 0; rows.norm != nullptr && i < m; ++i) {
    float* row = &out[i * k];
    double squares = 0;
    for (size_t j = 0; j < k; ++j) squares += double{row[j]} * row[j];
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(k) + rows.eps);
    for (size_t j = 0; j < k; ++j) row[j] = static_cast<float>(row[j] * inverse * rows.norm[j]);
  }
  return out;
}

/// [m, n], not yet rounded.
std::vector<double> multiply(const std::vector<float>& x, size_t m, const Matrix& w) {
  const auto& matrix = static_cast<const RefMatrix&>(w);
  const size_t n = matrix.rows();
  const size_t k = matrix.cols();
  std::vector<double> out(m * n);
  std::vector<float> row(k);
  for (size_t j = 0; j < n; ++j) {
    matrix.read_row(j, row.data());
    for (size_t i = 0; i < m; ++i) {
      for (size_t c = 0; c < k; ++c) out[i * n + j] += double{row[c]} * x[i * k + c];
    }
  }
  return out;
}

void RefOps::matmul(const Rows& rows, size_t m, std::span<const Product> products) {
  OUTRIDER_CHECK(!products.empty() && products.size() <= k_products_max, products.size());
  const std::vector<float> x = normed(rows, m, products[0].w->cols());
  for (const Product& p : products) {
    const size_t n = p.w->rows();
    std::vector<double> sums = multiply(x, m, *p.w);
    if (p.up != nullptr) {
      const std::vector<double> up = multiply(x, m, *p.up);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] *= up[i] / (1.0 + std::exp(-sums[i]));
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      if (p.bias != nullptr) sums[i] += p.bias[i % n];
      if (p.accumulate) sums[i] += p.y[i];
      p.y[i] = static_cast<float>(sums[i]);
    }
  }
}

/// By its definition in ops.hpp.
void multiply_by_hadamard(size_t head_dim, float* x) {
  OUTRIDER_CHECK(std::has_single_bit(head_dim), head_dim);
  const std::vector<double> from(x, x + head_dim);
  for (size_t i = 0; i < head_dim; ++i) {
    double sum = 0;
    for (size_t j = 0; j < head_dim; ++j) sum += std::popcount(i & j) % 2 == 0 ? from[j] : -from[j];
    x[i] = static_cast<float>(sum / std::sqrt(static_cast<double>(head_dim)));
  }
}

void RefOps::rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
                  size_t head_dim, float* x) {
  const auto& rope = static_cast<const RefRopeTable&>(table);
  const bool adjacent = rope.params.style == RopeParams::Style::adjacent;
  const size_t half = rope.params.rotary_dim / 2;
  for (size_t i = 0; i < m; ++i) {
    const int32_t position = positions[i];
    OUTRIDER_CHECK(position >= 0 && static_cast<uint32_t>(position) < rope.positions, position);
    for (size_t h = 0; h < heads; ++h, x += head_dim) {
      for (size_t p = 0; p < half; ++p) {
        const double turn = position * double{rope.params.scale} * rope.frequency[p];
        float& a = adjacent ? x[2 * p] : x[p];
        float& b = adjacent ? x[2 * p + 1] : x[p + half];
        const double first = a * std::cos(turn) - b * std::sin(turn);
        const double second = b * std::cos(turn) + a * std::sin(turn);
        a = static_cast<float>(first);
        b = static_cast<float>(second);
      }
      if (rope.params.hadamard) multiply_by_hadamard(head_dim, x);
    }
  }
}

void RefOps::kv_append(const KvGeometry& geometry, uint32_t layer,
                       std::span<const Segment> segments, const float* k, const float* v,
                       std::byte* pool) {
  const KvTiles tiles{geometry, layer};
  for (const Segment& s : segments) {
    for (uint32_t r = 0; r < s.rows; ++r) {
      const size_t position = s.first_position + r;
      for (uint32_t h = 0; h < geometry.kv_heads; ++h) {
        const size_t source =
            ((s.first_row + size_t{r}) * geometry.kv_heads + h) * geometry.head_dim;
        tiles.store(KvTensor::keys, s.block_table, position, h, k + source, pool);
        tiles.store(KvTensor::values, s.block_table, position, h, v + source, pool);
      }
    }
  }
}

void RefOps::attention(const KvGeometry& geometry, uint32_t layer,
                       std::span<const Segment> segments, const float* q, size_t heads, float scale,
                       const std::byte* pool, float* out) {
  const KvTiles tiles{geometry, layer};
  const size_t head_dim = geometry.head_dim;
  const size_t group = heads / geometry.kv_heads;
  for (const Segment& s : segments) {
    const size_t positions = s.first_position + size_t{s.rows};
    for (size_t kv_head = 0; kv_head < geometry.kv_heads; ++kv_head) {
      const auto keys = tiles.read(KvTensor::keys, s.block_table, positions, kv_head, pool);
      const auto values = tiles.read(KvTensor::values, s.block_table, positions, kv_head, pool);
      for (size_t i = 0; i < s.rows * group; ++i) {
        const size_t length = s.first_position + i / group + 1;
        const size_t window = geometry.window == 0 ? length : geometry.window;
        const size_t begin = length < window ? 0 : length - window;
        const size_t head = kv_head * group + i % group;
        const size_t at = ((s.first_row + i / group) * heads + head) * head_dim;
        attend(std::span(keys).subspan(begin * head_dim, (length - begin) * head_dim),
               values.data() + begin * head_dim, {q + at, head_dim}, scale, out + at);
      }
    }
  }
}

}  // namespace

std::unique_ptr<Ops> make_ref_ops() {
  return std::make_unique<RefOps>();
}

}  // namespace outrider::kernels
