#include <cstring>

#include "base/check.hpp"
#include "base/half.hpp"
#include "kernels/ops.hpp"
#include "kernels/weight_codes.hpp"

namespace outrider::kernels {
namespace {

uint16_t read_u16(const std::byte* data) {
  uint16_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

uint32_t read_u32(const std::byte* data) {
  uint32_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

float read_half(const std::byte* data) {
  return half_to_float(read_u16(data));
}

int low_nibble(std::byte b) {
  return std::to_integer<int>(b) & 15;
}
int high_nibble(std::byte b) {
  return std::to_integer<int>(b) >> 4;
}
int8_t code(int value) {
  return static_cast<int8_t>(value);
}

// 32 weights: half d [, half m], [4 bytes of fifth bits,] 16 bytes of nibbles. Byte i holds
// weight i in its low half and weight i + 16 in its high half.

void set_scales(const std::byte* in, bool has_offset, BlockCodes& out) {
  out.scale[0] = 1;
  out.offset[0] = 1;
  out.d = read_half(in);
  out.m = has_offset ? read_half(in + 2) : 0;
}

// Eight bytes at a time in one number.
constexpr uint64_t k_each_byte = 0x0101'0101'0101'0101u;

/// 16 in byte i where bit i is set: the bits are multiplied into all bytes, each byte keeps its own
/// and carries it into its highest bit.
uint64_t spread_fifth_bits(uint64_t bits) {
  const uint64_t own = bits * k_each_byte & 0x8040'2010'0804'0201u;
  return (own + 0x7F * k_each_byte) >> 3 & 0x10 * k_each_byte;
}

void split_nibbles(const std::byte* nibbles, uint32_t fifth_bits, uint64_t zero, BlockCodes& out) {
  for (int i = 0; i < 16; i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, nibbles + i, sizeof(bytes));
    for (int half = 0; half < 2; ++half) {
      const uint64_t low = bytes >> (4 * half) & 15 * k_each_byte;
      const uint64_t codes = low | spread_fifth_bits(fifth_bits >> (i + 16 * half) & 255);
      // The highest bit of each byte takes the borrow.
      const uint64_t coded =
          ((codes | 0x80 * k_each_byte) - zero * k_each_byte) ^ 0x80 * k_each_byte;
      std::memcpy(out.code + i + 16 * half, &coded, sizeof(coded));
    }
  }
}

void split_q4_0(const std::byte* in, BlockCodes& out) {
  set_scales(in, false, out);
  split_nibbles(in + 2, 0, 8, out);
}

void split_q4_1(const std::byte* in, BlockCodes& out) {
  set_scales(in, true, out);
  split_nibbles(in + 4, 0, 0, out);
}

void split_q5_0(const std::byte* in, BlockCodes& out) {
  set_scales(in, false, out);
  split_nibbles(in + 6, read_u32(in + 2), 16, out);
}

void split_q5_1(const std::byte* in, BlockCodes& out) {
  set_scales(in, true, out);
  split_nibbles(in + 8, read_u32(in + 4), 0, out);
}

void split_q8_0(const std::byte* in, BlockCodes& out) {
  set_scales(in, false, out);
  for (int i = 0; i < 32; ++i) out.code[i] = std::to_integer<int8_t>(in[2 + i]);
}

// 256 weights in 8 groups of 32: half d, half dmin, 12 bytes with eight 6-bit scales and minima.

/// Bytes 0-3 hold the low six bits of the scales of groups 0-3, bytes 4-7 those of the minima;
/// bytes 8-11 the low four bits of both for groups 4-7, whose high two bits top the bytes before.
void split_k_scales(const std::byte* block, BlockCodes& out) {
  out.d = read_half(block);
  out.m = -read_half(block + 2);
  const auto packed = [&](int i) { return std::to_integer<int>(block[4 + i]); };
  for (int g = 0; g < 4; ++g) {
    const int scales[] = {packed(g) & 63, (packed(g + 8) & 15) | packed(g) >> 6 << 4};
    const int minima[] = {packed(g + 4) & 63, packed(g + 8) >> 4 | packed(g + 4) >> 6 << 4};
    for (int upper = 0; upper < 2; ++upper) {
      out.scale[g + 4 * upper] = code(scales[upper]);
      out.offset[g + 4 * upper] = static_cast<uint8_t>(minima[upper]);
    }
  }
}

/// Groups 2j and 2j + 1 are the low and the high halves of nibble bytes [32 j, 32 j + 32).
void split_q4_k(const std::byte* in, BlockCodes& out) {
  split_k_scales(in, out);
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 32; ++i) {
      const std::byte nibbles = in[16 + 32 * j + i];
      out.code[64 * j + i] = code(low_nibble(nibbles));
      out.code[64 * j + 32 + i] = code(high_nibble(nibbles));
    }
  }
}

/// As Q4_K, with bit g of byte i of a 32-byte plane as the fifth bit of weight i in group g.
void split_q5_k(const std::byte* in, BlockCodes& out) {
  split_k_scales(in, out);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      const std::byte nibbles = in[48 + g / 2 * 32 + i];
      const int low = g % 2 == 0 ? low_nibble(nibbles) : high_nibble(nibbles);
      const int fifth = std::to_integer<int>(in[16 + i]) >> g & 1;
      out.code[32 * g + i] = code(low | fifth << 4);
    }
  }
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, half d. Each half of 128
/// weights: weight i + 32 j takes nibble plane j / 2 at byte i + 32 (j % 2), and bits 2j of high
/// byte i.
void split_q6_k(const std::byte* in, BlockCodes& out) {
  out.d = read_half(in + 208);
  out.m = 0;
  for (int g = 0; g < 16; ++g) {
    out.scale[g] = std::to_integer<int8_t>(in[192 + g]);
    out.offset[g] = 0;
  }
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 32; ++i) {
        const std::byte nibbles = in[64 * half + i + 32 * (j % 2)];
        const int low = j < 2 ? low_nibble(nibbles) : high_nibble(nibbles);
        const int high = std::to_integer<int>(in[128 + 32 * half + i]) >> (2 * j) & 3;
        out.code[128 * half + 32 * j + i] = code((low | high << 4) - 32);
      }
    }
  }
}

struct Codec {
  WeightType type;
  WeightTypeInfo info;
  size_t group;  ///< weights that share a scale; 0: none do
  BlockSplitter split;
};

constexpr Codec k_codecs[] = {
    {WeightType::f32, {"F32", 1, 4}, 0, nullptr},
    {WeightType::f16, {"F16", 1, 2}, 0, nullptr},
    {WeightType::q4_0, {"Q4_0", 32, 18}, 32, split_q4_0},
    {WeightType::q4_1, {"Q4_1", 32, 20}, 32, split_q4_1},
    {WeightType::q5_0, {"Q5_0", 32, 22}, 32, split_q5_0},
    {WeightType::q5_1, {"Q5_1", 32, 24}, 32, split_q5_1},
    {WeightType::q8_0, {"Q8_0", 32, 34}, 32, split_q8_0},
    {WeightType::q4_k, {"Q4_K", 256, 144}, 32, split_q4_k},
    {WeightType::q5_k, {"Q5_K", 256, 176}, 32, split_q5_k},
    {WeightType::q6_k, {"Q6_K", 256, 210}, 16, split_q6_k},
    {WeightType::bf16, {"BF16", 1, 2}, 0, nullptr},
};

const Codec* find_codec(WeightType type) {
  for (const Codec& codec : k_codecs) {
    if (codec.type == type) return &codec;
  }
  return nullptr;
}

const Codec& known_codec(WeightType type) {
  const Codec* codec = find_codec(type);
  OUTRIDER_CHECK(codec != nullptr, static_cast<uint32_t>(type));
  return *codec;
}

void dequantize_floats(WeightType type, const std::byte* data, size_t elements, float* out) {
  if (type == WeightType::f32) {
    std::memcpy(out, data, elements * sizeof(float));
    return;
  }
  for (size_t i = 0; i < elements; ++i) {
    const uint16_t bits = read_u16(data + 2 * i);
    out[i] = type == WeightType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
  }
}

}  // namespace

const WeightTypeInfo* weight_type_info(WeightType type) {
  const Codec* codec = find_codec(type);
  return codec == nullptr ? nullptr : &codec->info;
}

BlockSplitter block_splitter(WeightType type) {
  return known_codec(type).split;
}

void dequantize(WeightType type, const std::byte* data, size_t elements, float* out) {
  const Codec& codec = known_codec(type);
  const size_t step = codec.info.block_elements;
  OUTRIDER_CHECK(elements % step == 0, codec.info.name, elements);
  if (codec.split == nullptr) return dequantize_floats(type, data, elements, out);
  BlockCodes block;
  for (size_t i = 0; i < elements; i += step) {
    codec.split(data, block);
    for (size_t j = 0; j < step; ++j) {
      const size_t g = j / codec.group;
      const float scale = block.d * static_cast<float>(block.scale[g]);
      const float offset = block.m * static_cast<float>(block.offset[g]);
      out[i + j] = static_cast<float>(block.code[j]) * scale + offset;
    }
    data += codec.info.block_bytes;
  }
}

}  // namespace outrider::kernels
