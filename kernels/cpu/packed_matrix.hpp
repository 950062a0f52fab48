#pragma once

#include "kernels/cpu/buffer.hpp"
#include "kernels/cpu/panel_layout.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

/// A weight matrix as panels of 16 outputs (see panel_layout.hpp); its values equal
/// `dequantize`'s. Owns its memory. Immutable, shareable between threads.
class PackedMatrix final : public Matrix {
 public:
  PackedMatrix(const WeightView& weights, ThreadPool& pool);

  size_t rows() const override { return rows_; }
  size_t cols() const override { return cols_; }
  size_t bytes() const override { return panels() * panel_bytes_; }

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
  Buffer data_;
};

}  // namespace outrider::kernels
