#include "kernels/cpu/packed_matrix.hpp"

#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/half.hpp"
#include "kernels/cpu/buffer.hpp"
#include "kernels/cpu/pack_panel.hpp"

namespace outrider::kernels {
namespace {

float get_half(const std::byte* numbers, size_t lane) {
  uint16_t bits;
  std::memcpy(&bits, numbers + 2 * lane, sizeof(bits));
  return half_to_float(bits);
}

/// Where the bits of weight k of a group stand: words of 16 lanes, bits within the lane's word.
struct CodePlace {
  size_t word;
  uint32_t bit;
};

CodePlace low_place(const PanelLayout& layout, size_t k) {
  const auto half = static_cast<uint32_t>(k % 2 * 16);
  if (layout.code_bits == 8) return {k / 4, half + static_cast<uint32_t>(k % 4 / 2 * 8)};
  return {k / 8, half + static_cast<uint32_t>(k % 8 / 2 * 4)};
}

CodePlace high_place(const PanelLayout& layout, size_t k) {
  return {layout.group / 8, static_cast<uint32_t>(k % 2 * 16 + k / 2 * layout.high_bits())};
}

int get_code(const PanelLayout& layout, const std::byte* codes, size_t k, size_t lane) {
  const auto read = [&](const CodePlace& place) {
    uint32_t word;
    std::memcpy(&word, codes + 64 * place.word + 4 * lane, sizeof(word));
    return word >> place.bit;
  };
  uint32_t code = read(low_place(layout, k)) & (layout.code_bits == 8 ? 255 : 15);
  if (layout.high_bits() != 0) {
    code |= (read(high_place(layout, k)) & ((1u << layout.high_bits()) - 1)) << 4;
  }
  const int sign = layout.has_offset ? 0 : 1 << (layout.code_bits - 1);
  return (static_cast<int>(code) ^ sign) - sign;
}

}  // namespace

PackedMatrix::PackedMatrix(const WeightView& shape, std::shared_ptr<const std::byte> packed)
    : kind_(panel_kind(shape.type)),
      rows_(shape.rows),
      cols_(shape.cols),
      panel_bytes_(kernels::panel_bytes(kind_, cols_)),
      data_(std::move(packed)) {
  const WeightTypeInfo& info = *weight_type_info(shape.type);
  OUTRIDER_CHECK(cols_ % info.block_elements == 0, info.name, cols_);
}

PackedMatrix::PackedMatrix(const WeightView& weights, ThreadPool& pool)
    : PackedMatrix(weights, nullptr) {
  Buffer buffer = make_buffer(bytes());
  std::byte* out = buffer.get();
  data_ = std::shared_ptr<const std::byte>(buffer.release(), buffer.get_deleter());
  pool.parallel_for(panels(),
                    [&](size_t panel) { pack_panel(weights, panel, out + panel * panel_bytes_); });
}

void PackedMatrix::read_row(size_t row, float* out) const {
  if (panel_layout(kind_).super == 0) return read_floats(row, out);
  const PanelLayout layout = panel_layout(kind_);
  const size_t lane = row % 16;
  const std::byte* super = data_.get() + row / 16 * panel_bytes_;
  for (size_t k = 0; k < cols_; k += layout.super, super += layout.super_bytes()) {
    const float d = get_half(super, lane);
    const float m = layout.has_offset ? get_half(super + 32, lane) : 0;
    const std::byte* group = super + layout.super_header_bytes();
    for (size_t g = 0; g < layout.super; g += layout.group, group += layout.group_bytes()) {
      float scale = d;
      float offset = m;
      if (layout.scaled_groups) {
        scale *= static_cast<float>(static_cast<int8_t>(group[lane]));
        if (layout.has_offset) offset *= static_cast<float>(group[16 + lane]);
      }
      for (size_t i = 0; i < layout.group; ++i) {
        const int code = get_code(layout, group + layout.group_header_bytes(), i, lane);
        out[k + g + i] = static_cast<float>(code) * scale + offset;
      }
    }
  }
}

void PackedMatrix::read_floats(size_t row, float* out) const {
  const std::byte* panel = data_.get() + row / 16 * panel_bytes_;
  for (size_t k = 0; k < cols_; ++k) {
    const size_t at = 16 * k + row % 16;
    if (kind_ == PanelKind::f32) {
      std::memcpy(out + k, panel + 4 * at, sizeof(float));
    } else if (kind_ == PanelKind::f16) {
      out[k] = get_half(panel, at);
    } else {
      uint16_t bits;
      std::memcpy(&bits, panel + 2 * at, sizeof(bits));
      out[k] = bfloat16_to_float(bits);
    }
  }
}

}  // namespace outrider::kernels
