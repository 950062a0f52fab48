#include "kernels/cuda/pack_units.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.hpp"
#include "base/half.hpp"
#include "kernels/weight_codes.hpp"

namespace outrider::kernels::cuda {
namespace {

/// Which lane holds weight (output of the tile, k of the unit), and as which of its.
struct LanePlace {
  uint32_t lane, g, h, e;

  LanePlace(uint32_t output, uint32_t k)
      : lane(output % 8 * 4 + k % 16 / 4), g(k / 32), h(output / 8), e(k % 32 / 16 * 4 + k % 4) {}
  uint32_t part() const { return 2 * g + h; }
  /// Of nibbles and what stands above them.
  uint32_t bit() const { return e / 2 + 4 * (e % 2); }
};

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}
template <class T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
template <class T>
void add_bits(std::byte* at, T bits) {
  put(at, static_cast<T>(get<T>(at) | bits));
}

/// The planes of one tile.
class TileWriter {
 public:
  TileWriter(WeightType type, const UnitLayout& layout, uint32_t tile, std::byte* packed)
      : coding_(unit_coding(type)), layout_(layout), tile_(tile), packed_(packed) {}

  const UnitCoding& coding() const { return coding_; }
  size_t unit_index(size_t k) const { return size_t{tile_} * layout_.units + k / k_unit_k; }

  void put_code(uint32_t output, size_t k, uint32_t code) {
    const LanePlace at(output, static_cast<uint32_t>(k % k_unit_k));
    std::byte* const codes = unit_codes(k) + at.lane * 16;
    if (coding_.chunks == 2) {
      put(codes + at.g * k_chunk_bytes + at.h * 8 + at.e, static_cast<uint8_t>(code));
      return;
    }
    add_bits<uint32_t>(codes + at.part() * 4, (code & 15) << (4 * at.bit()));
    std::byte* const high = packed_ + layout_.high_at + unit_index(k) * high_bytes(coding_);
    if (coding_.high_bits == 1) {
      add_bits<uint32_t>(high + at.lane * 4, (code >> 4) << (8 * at.part() + at.bit()));
    } else if (coding_.high_bits == 2) {
      add_bits<uint32_t>(high + at.lane * 8 + at.g * 4, (code >> 4) << (16 * at.h + 2 * at.bit()));
    }
  }
  void put_half(uint32_t output, size_t k, uint16_t bits) {
    const LanePlace at(output, static_cast<uint32_t>(k % k_unit_k));
    put(unit_codes(k) + at.part() * k_chunk_bytes + at.lane * 16 + at.e * 2, bits);
  }
  void put_float(uint32_t output, size_t k, uint32_t bits) {
    const LanePlace at(output, static_cast<uint32_t>(k % k_unit_k));
    const uint32_t chunk = 2 * at.part() + at.e / 4;
    put(unit_codes(k) + chunk * k_chunk_bytes + at.lane * 16 + at.e % 4 * 4, bits);
  }
  std::byte* scales(uint32_t output, size_t k) const {
    return packed_ + layout_.scales_at +
           (unit_index(k) * k_tile_outputs + output) * coding_.scale_bytes;
  }
  /// Of the four units around k.
  std::byte* top(uint32_t output, size_t k) const {
    const size_t fours = size_t{tile_} * (layout_.units / 4) + k / k_unit_k / 4;
    return packed_ + layout_.tops_at + fours * top_bytes(coding_) +
           output * (coding_.tops == Tops::singles ? 2 : 4);
  }
  /// For a row whose weights are at most so large (the bits of a float); returns what to multiply
  /// them by.
  float put_row_scale(uint32_t output, uint32_t largest_bits) {
    const int32_t exponent = half_exponent(largest_bits);
    const auto power = [](int32_t n) {
      return std::bit_cast<float>(static_cast<uint32_t>(127 + n) << 23);
    };
    put(packed_ + layout_.row_scales_at + (size_t{tile_} * k_tile_outputs + output) * sizeof(float),
        power(-exponent));
    return power(exponent);
  }

 private:
  std::byte* unit_codes(size_t k) const {
    return packed_ + unit_index(k) * coding_.chunks * k_chunk_bytes;
  }

  UnitCoding coding_;
  const UnitLayout& layout_;
  uint32_t tile_;
  std::byte* packed_;
};

void pack_float_row(WeightType type, const std::byte* row, size_t cols, uint32_t output,
                    TileWriter& out) {
  const auto bits_at = [&](size_t k) {
    if (type == WeightType::f32) return get<uint32_t>(row + 4 * k);
    return uint32_t{get<uint16_t>(row + 2 * k)} << 16;  // of F16 only its own 16 bits are used
  };
  uint32_t largest = 0;
  for (size_t k = 0; k < cols; ++k) {
    const uint32_t bits = bits_at(k);
    if (type == WeightType::f32) {
      out.put_float(output, k, bits);
    } else {
      out.put_half(output, k, static_cast<uint16_t>(bits >> 16));
    }
    largest = std::max(largest, bits & 0x7FFFFFFFu);
  }
  if (out.coding().is_wide) out.put_row_scale(output, largest);
}

void put_scales(const BlockCodes& block, float factor, size_t k, uint32_t output, TileWriter& out) {
  const UnitCoding& coding = out.coding();
  const uint16_t d = float_to_half(block.d * factor), m = float_to_half(block.m * factor);
  if (coding.tops == Tops::none) {
    std::byte* const at = out.scales(output, k) + k % k_unit_k / 32 * (coding.offsets ? 4 : 2);
    put(at, d);
    if (coding.offsets) put(at + 2, m);
    return;
  }
  put(out.top(output, k), d);
  if (coding.tops == Tops::pairs) put(out.top(output, k) + 2, m);
  const size_t step = coding.sixteenths ? 16 : 32;
  for (size_t i = 0; i < 256; i += step) {
    std::byte* const at = out.scales(output, k + i);
    const size_t place = (k + i) % k_unit_k / step;
    if (coding.sixteenths) {
      put(at + place, block.scale[i / step]);
    } else {
      put(at + 2 * place, block.scale[i / step]);
      put(at + 2 * place + 1, block.offset[i / step]);
    }
  }
}

/// The block as `split` gives it, but for factors that only zeros are multiplied by: those may be
/// larger than all weights of the row and would not fit into a half.
void read_block(BlockSplitter split, const std::byte* from, size_t count, BlockCodes& block) {
  split(from, block);
  const auto any = [](const auto* values, size_t size) {
    return std::any_of(values, values + size, [](int value) { return value != 0; });
  };
  if (!any(block.code, count) || !any(block.scale, std::size(block.scale))) block.d = 0;
  if (!any(block.offset, std::size(block.offset))) block.m = 0;
}

/// No product of a code and a scale, no offset, no sum of the two and no factor is larger.
float largest_of(const BlockCodes& block, size_t count) {
  int code = 0, scale = 0, offset = 0;
  for (size_t i = 0; i < count; ++i) code = std::max(code, std::abs(int{block.code[i]}));
  for (const int8_t s : block.scale) scale = std::max(scale, std::abs(int{s}));
  for (const uint8_t o : block.offset) offset = std::max(offset, int{o});
  return std::abs(block.d) * static_cast<float>(code * scale) +
         std::abs(block.m) * static_cast<float>(offset);
}

void pack_coded_row(WeightType type, const std::byte* row, size_t cols, uint32_t output,
                    TileWriter& out) {
  const WeightTypeInfo& info = *weight_type_info(type);
  const BlockSplitter split = block_splitter(type);
  const auto zero = static_cast<int>(out.coding().zero);
  BlockCodes block = {};
  uint32_t largest = 0;
  const std::byte* from = row;
  for (size_t k = 0; k < cols; k += info.block_elements, from += info.block_bytes) {
    read_block(split, from, info.block_elements, block);
    largest = std::max(largest, std::bit_cast<uint32_t>(largest_of(block, info.block_elements)));
  }
  const float factor = out.put_row_scale(output, largest);
  for (size_t k = 0; k < cols; k += info.block_elements, row += info.block_bytes) {
    read_block(split, row, info.block_elements, block);
    for (size_t i = 0; i < info.block_elements; ++i) {
      out.put_code(output, k + i, static_cast<uint32_t>(block.code[i] + zero));
    }
    put_scales(block, factor, k, output, out);
  }
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

UnitLayout::UnitLayout(WeightType type, size_t rows, size_t cols)
    : tiles(static_cast<uint32_t>((rows + k_tile_outputs - 1) / k_tile_outputs)),
      units(static_cast<uint32_t>((cols + k_unit_k - 1) / k_unit_k)) {
  const UnitCoding coding = unit_coding(type);
  const size_t all = size_t{tiles} * units;
  high_at = aligned(all * coding.chunks * k_chunk_bytes);
  scales_at = high_at + aligned(all * high_bytes(coding));
  tops_at = scales_at + aligned(all * k_tile_outputs * coding.scale_bytes);
  row_scales_at = tops_at + aligned(size_t{tiles} * (units / 4) * top_bytes(coding));
  has_row_scales = type != WeightType::f16;
  bytes = row_scales_at + (has_row_scales ? aligned(size_t{tiles} * k_tile_outputs * 4) : 0);
}

MatrixView UnitLayout::view(const std::byte* packed, size_t rows) const {
  return {.codes = packed,
          .high = packed + high_at,
          .scales = packed + scales_at,
          .tops = packed + tops_at,
          .row_scales =
              has_row_scales ? reinterpret_cast<const float*>(packed + row_scales_at) : nullptr,
          .outputs = static_cast<uint32_t>(rows),
          .tiles = tiles,
          .units = units};
}

void pack_tile(const WeightView& weights, const UnitLayout& layout, uint32_t tile,
               std::byte* packed) {
  const WeightTypeInfo& info = *weight_type_info(weights.type);
  const size_t row_bytes = weights.cols / info.block_elements * info.block_bytes;
  TileWriter out(weights.type, layout, tile, packed);
  for (uint32_t output = 0; output < k_tile_outputs; ++output) {
    const size_t row = size_t{tile} * k_tile_outputs + output;
    if (row >= weights.rows) return;
    const std::byte* const from = weights.data + row * row_bytes;
    if (out.coding().is_float) {
      pack_float_row(weights.type, from, weights.cols, output, out);
    } else {
      pack_coded_row(weights.type, from, weights.cols, output, out);
    }
  }
}

}  // namespace outrider::kernels::cuda
