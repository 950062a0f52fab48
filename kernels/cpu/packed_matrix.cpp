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
      return PanelKind::q4_0;
    case WeightType::q4_1:
      return PanelKind::q4_1;
    case WeightType::q4_k:
      return PanelKind::q4_k;
    case WeightType::q5_0:
      return PanelKind::q5_0;
    case WeightType::q5_1:
      return PanelKind::q5_1;
    case WeightType::q5_k:
      return PanelKind::q5_k;
    case WeightType::q6_k:
      return PanelKind::q6_k;
    case WeightType::q8_0:
      return PanelKind::q8_0;
  }
  OUTRIDER_CHECK(false, "weight type", static_cast<uint32_t>(type));
  __builtin_unreachable();
}

size_t panel_bytes_of(PanelKind kind, size_t cols) {
  const PanelLayout layout = panel_layout(kind);
  if (layout.super != 0) return cols / layout.super * layout.super_bytes();
  return (cols + k_float_step - 1) / k_float_step * k_float_step * 2 * layout.code_bits;
}

void put_half(std::byte* numbers, size_t lane, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(numbers + 2 * lane, &bits, sizeof(bits));
}

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

/// The lane's words of one group.
void put_codes(const PanelLayout& layout, const int8_t* codes, size_t lane, std::byte* out) {
  const uint32_t low_mask = layout.code_bits == 8 ? 255 : 15;
  const uint32_t high_mask = (1u << layout.high_bits()) - 1;
  uint32_t words[8] = {};
  for (size_t k = 0; k < layout.group; ++k) {
    const auto code = static_cast<uint32_t>(codes[k]);
    const CodePlace low = low_place(layout, k);
    words[low.word] |= (code & low_mask) << low.bit;
    if (high_mask == 0) continue;
    const CodePlace high = high_place(layout, k);
    words[high.word] |= (code >> 4 & high_mask) << high.bit;
  }
  const size_t count = layout.group * layout.code_bits / 32;
  for (size_t w = 0; w < count; ++w) std::memcpy(out + 64 * w + 4 * lane, &words[w], 4);
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

PackedMatrix::PackedMatrix(const WeightView& weights, ThreadPool& pool)
    : kind_(panel_kind(weights.type)),
      rows_(weights.rows),
      cols_(weights.cols),
      panel_bytes_(panel_bytes_of(kind_, cols_)),
      data_(nullptr, nullptr) {
  const WeightTypeInfo& info = *weight_type_info(weights.type);
  OUTRIDER_CHECK(cols_ % info.block_elements == 0, info.name, cols_);
  data_ = make_buffer(bytes());
  pool.parallel_for(panels(), [&](size_t panel) { pack_panel(weights, panel); });
}

void PackedMatrix::pack_panel(const WeightView& weights, size_t panel) {
  std::byte* out = data_.get() + panel * panel_bytes_;
  for (size_t row = 16 * panel; row < rows_ && row < 16 * (panel + 1); ++row) {
    if (panel_layout(kind_).super == 0) {
      pack_floats(weights, row, out);
    } else {
      pack_codes(weights, row, out);
    }
  }
}

void PackedMatrix::pack_floats(const WeightView& weights, size_t row, std::byte* panel) {
  const size_t size = panel_layout(kind_).code_bits / 8;
  const std::byte* in = weights.data + row * cols_ * size;
  for (size_t k = 0; k < cols_; ++k) {
    std::memcpy(panel + (16 * k + row % 16) * size, in + k * size, size);
  }
}

void PackedMatrix::pack_codes(const WeightView& weights, size_t row, std::byte* panel) {
  const PanelLayout layout = panel_layout(kind_);
  const WeightTypeInfo& info = *weight_type_info(weights.type);
  OUTRIDER_CHECK(info.block_elements == layout.super, info.name);
  const size_t lane = row % 16;
  const std::byte* in = weights.data + row * (cols_ / info.block_elements) * info.block_bytes;
  BlockCodes block;
  for (size_t k = 0; k < cols_; k += layout.super, in += info.block_bytes) {
    split_block(weights.type, in, block);
    put_half(panel, lane, block.d);
    if (layout.has_offset) put_half(panel + 32, lane, block.m);
    std::byte* group = panel + layout.super_header_bytes();
    for (size_t g = 0; g < layout.super / layout.group; ++g, group += layout.group_bytes()) {
      if (layout.scaled_groups) {
        group[lane] = static_cast<std::byte>(block.scale[g]);
        if (layout.has_offset) group[16 + lane] = static_cast<std::byte>(block.offset[g]);
      }
      put_codes(layout, block.code + g * layout.group, lane, group + layout.group_header_bytes());
    }
    panel += layout.super_bytes();
  }
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
