#pragma once

#include <memory>
#include <utility>

#include "kernels/ops.hpp"

namespace outrider::exactness {

/// Another back end, unchanged; tests override what they want to break.
class ForwardingOps : public kernels::Ops {
 public:
  explicit ForwardingOps(std::unique_ptr<kernels::Ops> inner) : inner_(std::move(inner)) {}

  std::string_view numerics_class() const override { return inner_->numerics_class(); }
  std::string_view description() const override { return inner_->description(); }
  uint32_t threads() const override { return inner_->threads(); }
  void set_threads(uint32_t threads) override { inner_->set_threads(threads); }
  Buffer allocate(size_t bytes) override { return inner_->allocate(bytes); }
  void reserve(const kernels::StepSizes& sizes) override { inner_->reserve(sizes); }
  void wait() override { inner_->wait(); }
  bool shares_host_memory() const override { return inner_->shares_host_memory(); }
  void upload(std::span<const std::byte> from, std::byte* to) override { inner_->upload(from, to); }
  void download(const std::byte* from, std::span<std::byte> to) override {
    inner_->download(from, to);
  }
  Buffer allocate_host(size_t bytes) override { return inner_->allocate_host(bytes); }
  void start_download(const std::byte* from, std::span<std::byte> to) override {
    inner_->start_download(from, to);
  }
  void parallel_for(size_t count, const std::function<void(size_t)>& body) override {
    inner_->parallel_for(count, body);
  }
  std::unique_ptr<kernels::Matrix> pack(const kernels::WeightView& weights) override {
    return inner_->pack(weights);
  }
  std::string_view packing() const override { return inner_->packing(); }
  std::unique_ptr<kernels::Matrix> adopt(const kernels::WeightView& shape, size_t bytes,
                                         std::shared_ptr<const std::byte> packed) override {
    return inner_->adopt(shape, bytes, std::move(packed));
  }
  std::unique_ptr<kernels::RopeTable> make_rope_table(const kernels::RopeParams& params,
                                                      uint32_t positions) override {
    return inner_->make_rope_table(params, positions);
  }
  void embed(const kernels::Matrix& table, std::span<const int32_t> ids, float* out) override {
    inner_->embed(table, ids, out);
  }
  void gather(const float* x, std::span<const uint32_t> rows, size_t width, float* out) override {
    inner_->gather(x, rows, width, out);
  }
  void matmul(const kernels::Rows& rows, size_t m,
              std::span<const kernels::Product> products) override {
    inner_->matmul(rows, m, products);
  }
  void rope(const kernels::RopeTable& table, const int32_t* positions, size_t m, size_t heads,
            size_t head_dim, float* x) override {
    inner_->rope(table, positions, m, heads, head_dim, x);
  }
  void kv_append(const kernels::KvGeometry& geometry, uint32_t layer,
                 std::span<const kernels::Segment> segments, const float* k, const float* v,
                 std::byte* pool) override {
    inner_->kv_append(geometry, layer, segments, k, v, pool);
  }
  void attention(const kernels::KvGeometry& geometry, uint32_t layer,
                 std::span<const kernels::Segment> segments, const float* q, size_t heads,
                 float scale, const std::byte* pool, float* out) override {
    inner_->attention(geometry, layer, segments, q, heads, scale, pool, out);
  }
  void copy_block(const kernels::KvGeometry& geometry, int32_t from, int32_t to,
                  std::byte* pool) override {
    inner_->copy_block(geometry, from, to, pool);
  }
  void read_block(const kernels::KvGeometry& geometry, int32_t block, const std::byte* pool,
                  std::byte* k, std::byte* v) override {
    inner_->read_block(geometry, block, pool, k, v);
  }
  void write_block(const kernels::KvGeometry& geometry, int32_t block, const std::byte* k,
                   const std::byte* v, std::byte* pool) override {
    inner_->write_block(geometry, block, k, v, pool);
  }

 protected:
  std::unique_ptr<kernels::Ops> inner_;
};

}  // namespace outrider::exactness
