#pragma once

#include "kernels/cpu/panel_layout.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

/// Names panel_layout.hpp's layout. Another layout needs another name: copies are kept on disk.
inline constexpr std::string_view k_panel_packing = "cpu panels 1";

/// A weight matrix as panels of 16 outputs (see panel_layout.hpp); its values equal
/// `dequantize`'s. Owns its memory or a share of it. Immutable, shareable between threads.
class PackedMatrix final : public Matrix {
 public:
  PackedMatrix(const WeightView& weights, ThreadPool& pool);
  /// Of bytes() bytes that were packed before.
  PackedMatrix(const WeightView& shape, std::shared_ptr<const std::byte> packed);

  size_t rows() const override { return rows_; }
  size_t cols() const override { return cols_; }
  std::span<const std::byte> packed() const override {
    return {data_.get(), panels() * panel_bytes_};
  }

  PanelKind kind() const { return kind_; }
  size_t panels() const { return (rows_ + 15) / 16; }
  size_t panel_bytes() const { return panel_bytes_; }
  const std::byte* data() const { return data_.get(); }

  /// The weights of one row, as floats [cols].
  void read_row(size_t row, float* out) const;

 private:
  void read_floats(size_t row, float* out) const;

  PanelKind kind_;
  size_t rows_ = 0;
  size_t cols_ = 0;
  size_t panel_bytes_ = 0;
  std::shared_ptr<const std::byte> data_;
};

}  // namespace outrider::kernels
