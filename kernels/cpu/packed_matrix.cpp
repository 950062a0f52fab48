#include "kernels/cpu/packed_matrix.hpp"

#include <cstring>

#include "base/check.hpp"
#include "base/half.hpp"
#include "kernels/weight_codes.hpp"

namespace outrider::kernels {
namespace {

PanelKind panel_kind(WeightType type) {
  switch (type) {
    case WeightType::f32:
      return PanelKind::f32;
    case WeightType::f16:
      return PanelKind::f16;
    case WeightType::bf16:
      return PanelKind::bf16;
    case WeightType::q4_0:
      return PanelKind::nibble_centered;
    case WeightType::q4_1:
      return PanelKind::nibble_half;
    case WeightType::q4_k:
      return PanelKind::nibble_float;
    case WeightType::q5_0:
      return PanelKind::int8_half;
    case WeightType::q5_1:
      return PanelKind::int8_half_offset;
    case WeightType::q5_k:
      return PanelKind::int8_float_offset;
    case WeightType::q6_k:
      return PanelKind::int8_float;
    case WeightType::q8_0:
      return PanelKind::int8_half;
  }
  OUTRIDER_CHECK(false, "weight type", static_cast<uint32_t>(type));
  __builtin_unreachable();
}

const PanelLayout& layout_of(PanelKind kind) {
  return k_panel_layouts[static_cast<size_t>(kind)];
}

/// Offset that is added to codes before they go into nibbles.
int nibble_bias(PanelKind kind) {
  return kind == PanelKind::nibble_centered ? 8 : 0;
}

/// Lane `lane` of 16 numbers that are halves or floats.
void put_number(std::byte* numbers, size_t lane, uint32_t bytes, float value) {
  if (bytes == 2) {
    const uint16_t bits = float_to_half(value);
    std::memcpy(numbers + 2 * lane, &bits, sizeof(bits));
  } else if (bytes == 4) {
    std::memcpy(numbers + 4 * lane, &value, sizeof(value));
  }
}

float get_number(const std::byte* numbers, size_t lane, uint32_t bytes) {
  if (bytes == 2) {
    uint16_t bits;
    std::memcpy(&bits, numbers + 2 * lane, sizeof(bits));
    return half_to_float(bits);
  }
  float value = 0;
  if (bytes == 4) std::memcpy(&value, numbers + 4 * lane, sizeof(value));
  return value;
}

void put_code(const PanelLayout& layout, std::byte* codes, size_t k, size_t lane, int code) {
  if (layout.code_bits == 8) {
    codes[16 * k + lane] = static_cast<std::byte>(code);
    return;
  }
  std::byte& pair = codes[k / 8 * 64 + 4 * lane + k % 8 / 2];
  pair |= static_cast<std::byte>(code << (k % 2 * 4));
}

int get_code(const PanelLayout& layout, const std::byte* codes, size_t k, size_t lane) {
  if (layout.code_bits == 8) return std::to_integer<int8_t>(codes[16 * k + lane]);
  const std::byte pair = codes[k / 8 * 64 + 4 * lane + k % 8 / 2];
  return std::to_integer<int>(pair) >> (k % 2 * 4) & 15;
}

}  // namespace

PackedMatrix::PackedMatrix(const WeightView& weights, ThreadPool& pool)
    : kind_(panel_kind(weights.type)),
      rows_(weights.rows),
      cols_(weights.cols),
      data_(nullptr, nullptr) {
  const PanelLayout& layout = layout_of(kind_);
  const WeightTypeInfo& info = *weight_type_info(weights.type);
  OUTRIDER_CHECK(cols_ % info.block_elements == 0, info.name, cols_);
  panel_bytes_ = (cols_ + layout.group - 1) / layout.group * layout.group_bytes();
  data_ = make_buffer(bytes());
  pool.parallel_for(panels(), [&](size_t panel) { pack_panel(weights, panel); });
}

void PackedMatrix::pack_panel(const WeightView& weights, size_t panel) {
  std::byte* out = data_.get() + panel * panel_bytes_;
  for (size_t row = 16 * panel; row < rows_ && row < 16 * (panel + 1); ++row) {
    if (layout_of(kind_).scale_bytes == 0) {
      pack_floats(weights, row, out);
    } else {
      pack_codes(weights, row, out);
    }
  }
}

void PackedMatrix::pack_floats(const WeightView& weights, size_t row, std::byte* panel) {
  const size_t size = layout_of(kind_).code_bits / 8;
  const std::byte* in = weights.data + row * cols_ * size;
  for (size_t k = 0; k < cols_; ++k) {
    std::memcpy(panel + (16 * k + row % 16) * size, in + k * size, size);
  }
}

void PackedMatrix::pack_codes(const WeightView& weights, size_t row, std::byte* panel) {
  const PanelLayout& layout = layout_of(kind_);
  const WeightTypeInfo& info = *weight_type_info(weights.type);
  const size_t lane = row % 16;
  const int bias = nibble_bias(kind_);
  const std::byte* in = weights.data + row * (cols_ / info.block_elements) * info.block_bytes;
  BlockCodes block;
  for (size_t k = 0; k < cols_; k += info.block_elements, in += info.block_bytes) {
    split_block(weights.type, in, block);
    for (size_t g = 0; g < info.block_elements / layout.group; ++g) {
      std::byte* group = panel + (k / layout.group + g) * layout.group_bytes();
      put_number(group, lane, layout.scale_bytes, block.scale[g]);
      put_number(group + size_t{16} * layout.scale_bytes, lane, layout.offset_bytes,
                 block.offset[g]);
      std::byte* codes = group + layout.codes_at();
      for (size_t i = 0; i < layout.group; ++i) {
        put_code(layout, codes, i, lane, block.code[g * layout.group + i] + bias);
      }
    }
  }
}

void PackedMatrix::read_row(size_t row, float* out) const {
  const PanelLayout& layout = layout_of(kind_);
  const size_t lane = row % 16;
  const std::byte* panel = data_.get() + row / 16 * panel_bytes_;
  if (layout.scale_bytes == 0) {
    const size_t size = layout.code_bits / 8;
    for (size_t k = 0; k < cols_; ++k) {
      const std::byte* at = panel + (16 * k + lane) * size;
      if (kind_ == PanelKind::bf16) {
        uint16_t bits;
        std::memcpy(&bits, at, sizeof(bits));
        out[k] = bfloat16_to_float(bits);
      } else {
        out[k] = get_number(at, 0, static_cast<uint32_t>(size));
      }
    }
    return;
  }
  const int bias = nibble_bias(kind_);
  for (size_t k = 0; k < cols_; k += layout.group) {
    const std::byte* group = panel + k / layout.group * layout.group_bytes();
    const float scale = get_number(group, lane, layout.scale_bytes);
    const float offset =
        get_number(group + size_t{16} * layout.scale_bytes, lane, layout.offset_bytes);
    for (size_t i = 0; i < layout.group; ++i) {
      const int code = get_code(layout, group + layout.codes_at(), i, lane) - bias;
      out[k + i] = static_cast<float>(code) * scale + offset;
    }
  }
}

}  // namespace outrider::kernels
