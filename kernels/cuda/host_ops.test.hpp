#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "kernels/cuda/gpu_test.hpp"

/// Back ends on devices for tests that are written for the host's memory.
namespace outrider::kernels::cuda::testing_support {

/// A copy of the host's numbers on a device; back again when asked.
class OnDevice {
 public:
  OnDevice(Ops& ops, const void* data, size_t bytes)
      : ops_(ops), bytes_(bytes), memory_(ops.allocate(bytes)) {
    ops.upload({static_cast<const std::byte*>(data), bytes}, memory_.get());
  }
  template <class T>
  static OnDevice of(Ops& ops, const T* data, size_t count) {
    return OnDevice(ops, data, data == nullptr ? 0 : count * sizeof(T));
  }

  std::byte* data() const { return memory_.get(); }
  float* floats() const { return bytes_ == 0 ? nullptr : reinterpret_cast<float*>(data()); }
  void read_back(void* to) const { ops_.download(data(), {static_cast<std::byte*>(to), bytes_}); }

 private:
  Ops& ops_;
  size_t bytes_;
  Ops::Buffer memory_;
};

/// Another back end, whose floats and pools are the host's memory: each call copies there and back.
class HostOps final : public Ops {
 public:
  explicit HostOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  std::string_view numerics_class() const override { return inner_->numerics_class(); }
  std::string_view description() const override { return inner_->description(); }
  uint32_t threads() const override { return inner_->threads(); }
  void set_threads(uint32_t threads) override { inner_->set_threads(threads); }
  void parallel_for(size_t count, const std::function<void(size_t)>& body) override {
    inner_->parallel_for(count, body);
  }
  Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void reserve(const StepSizes& sizes) override { inner_->reserve(sizes); }
  void wait() override { inner_->wait(); }
  bool shares_host_memory() const override { return false; }
  void upload(std::span<const std::byte> from, std::byte* to) override { inner_->upload(from, to); }
  void download(const std::byte* from, std::span<std::byte> to) override {
    inner_->download(from, to);
  }
  Buffer allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  void start_download(const std::byte* from, std::span<std::byte> to) override {
    inner_->start_download(from, to);
  }
  std::unique_ptr<Matrix> pack(const WeightView& weights) override { return inner_->pack(weights); }
  std::string_view packing() const override { return inner_->packing(); }
  std::unique_ptr<Matrix> adopt(const WeightView& shape, size_t bytes,
                                std::shared_ptr<const std::byte> packed) override {
    return inner_->adopt(shape, bytes, std::move(packed));
  }
  std::unique_ptr<RopeTable> make_rope_table(const RopeParams& params,
                                             uint32_t positions) override {
    return inner_->make_rope_table(params, positions);
  }

  void embed(const Matrix& table, std::span<const int32_t> ids, float* out) override {
    const auto o = OnDevice::of(*inner_, out, ids.size() * table.cols());
    inner_->embed(table, ids, o.floats());
    o.read_back(out);
  }
  void gather(const float* x, std::span<const uint32_t> rows, size_t width, float* out) override {
    const uint32_t last = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
    const auto from = OnDevice::of(*inner_, x, (last + 1) * width);
    const auto o = OnDevice::of(*inner_, out, rows.size() * width);
    inner_->gather(from.floats(), rows, width, o.floats());
    o.read_back(out);
  }
  void matmul(const Rows& rows, size_t m, std::span<const Product> products) override;
  void rope(const RopeTable& table, const int32_t* positions, size_t m, size_t heads,
            size_t head_dim, float* x) override {
    const auto on = OnDevice::of(*inner_, x, m * heads * head_dim);
    inner_->rope(table, positions, m, heads, head_dim, on.floats());
    on.read_back(x);
  }
  void kv_append(const KvGeometry& geometry, uint32_t layer, std::span<const Segment> segments,
                 const float* k, const float* v, std::byte* pool) override {
    const size_t width = geometry.kv_heads * geometry.head_dim;
    const auto keys = OnDevice::of(*inner_, k, rows_of(segments) * width);
    const auto values = OnDevice::of(*inner_, v, rows_of(segments) * width);
    const OnDevice blocks(*inner_, pool, pool_bytes(geometry, segments));
    inner_->kv_append(geometry, layer, segments, keys.floats(), values.floats(), blocks.data());
    blocks.read_back(pool);
  }
  void attention(const KvGeometry& geometry, uint32_t layer, std::span<const Segment> segments,
                 const float* q, size_t heads, float scale, const std::byte* pool,
                 float* out) override {
    const size_t floats = rows_of(segments) * heads * geometry.head_dim;
    const auto queries = OnDevice::of(*inner_, q, floats);
    const auto o = OnDevice::of(*inner_, out, floats);
    const OnDevice blocks(*inner_, pool, pool_bytes(geometry, segments));
    inner_->attention(geometry, layer, segments, queries.floats(), heads, scale, blocks.data(),
                      o.floats());
    o.read_back(out);
  }
  void copy_block(const KvGeometry& geometry, int32_t from, int32_t to, std::byte* pool) override {
    const size_t blocks = static_cast<size_t>(std::max(from, to)) + 1;
    const OnDevice on(*inner_, pool, blocks * geometry.block_bytes());
    inner_->copy_block(geometry, from, to, on.data());
    on.read_back(pool);
  }
  void read_block(const KvGeometry& geometry, int32_t block, const std::byte* pool, std::byte* k,
                  std::byte* v) override {
    const OnDevice on(*inner_, pool, (static_cast<size_t>(block) + 1) * geometry.block_bytes());
    inner_->read_block(geometry, block, on.data(), k, v);
  }
  void write_block(const KvGeometry& geometry, int32_t block, const std::byte* k,
                   const std::byte* v, std::byte* pool) override {
    const OnDevice on(*inner_, pool, (static_cast<size_t>(block) + 1) * geometry.block_bytes());
    inner_->write_block(geometry, block, k, v, on.data());
    on.read_back(pool);
  }

 private:
  static size_t rows_of(std::span<const Segment> segments) {
    size_t rows = 0;
    for (const Segment& s : segments) rows = std::max<size_t>(rows, s.first_row + s.rows);
    return rows;
  }
  /// Up to the last block that a segment uses.
  static size_t pool_bytes(const KvGeometry& geometry, std::span<const Segment> segments) {
    int32_t last = 0;
    for (const Segment& s : segments) {
      const uint32_t positions = s.first_position + s.rows;
      for (uint32_t i = 0; i * geometry.block_tokens < positions; ++i) {
        last = std::max(last, s.block_table[i]);
      }
    }
    return (static_cast<size_t>(last) + 1) * geometry.block_bytes();
  }

  std::unique_ptr<Ops> inner_;
};

inline void HostOps::matmul(const Rows& rows, size_t m, std::span<const Product> products) {
  const size_t k = products[0].w->cols();
  const auto x = OnDevice::of(*inner_, rows.x, m * k);
  const auto norm = OnDevice::of(*inner_, rows.norm, k);
  std::vector<OnDevice> outputs, biases;
  std::vector<Product> on_device(products.begin(), products.end());
  for (Product& p : on_device) {
    outputs.push_back(OnDevice::of(*inner_, p.y, m * p.w->rows()));
    biases.push_back(OnDevice::of(*inner_, p.bias, p.w->rows()));
    p.y = outputs.back().floats();
    p.bias = biases.back().floats();
  }
  inner_->matmul({x.floats(), norm.floats(), rows.eps}, m, on_device);
  for (size_t i = 0; i < products.size(); ++i) outputs[i].read_back(products[i].y);
}

/// Emulated devices: an A100's shared memory and few blocks, or the reverse order, an H100's memory
/// and so many blocks that work is split.
inline std::unique_ptr<Ops> emulated_ops(bool backwards) {
  EmulatedTraits traits;
  if (backwards) traits = {132, size_t{227} << 10, true};
  return std::make_unique<HostOps>(make_ops(make_emulated_device(traits), backwards ? 1 : 2));
}

/// Tests that run on emulated devices and, where there is one, on a GPU.
class EachDevice : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "gpu") {
      ops_ = emulated_ops(GetParam() == "backwards");
      return;
    }
    auto device = open_device(0);
    if (device.ok()) {
      ops_ = std::make_unique<HostOps>(make_ops(std::move(device).value(), 2));
      return;
    }
    OUTRIDER_SKIP_WITHOUT_GPU(device.error().message);
  }
  /// For the first emulated device the other one, whose bits must be the same; else null.
  std::unique_ptr<Ops> other() const {
    return GetParam() == "emulated" ? emulated_ops(true) : nullptr;
  }

  std::unique_ptr<Ops> ops_;
};

inline std::string device_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}
#define OUTRIDER_EACH_DEVICE(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite, ::testing::Values("emulated", "backwards", "gpu"), \
                           ::outrider::kernels::cuda::testing_support::device_name)

}  // namespace outrider::kernels::cuda::testing_support
