#include "kernels/kv_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.hpp"

namespace outrider::kernels {
namespace {

using Codebook = std::array<float, 16>;

constexpr Codebook k_q4_0 = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
constexpr Codebook k_nf4 = {-1.0f,        -0.69619280f, -0.52507305f, -0.39491749f,
                            -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
                            0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                            0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
constexpr Codebook k_q3 = {-0.8842f, -0.5492f, -0.3069f, -0.0991f, 0.0991f,  0.3069f,
                           0.5492f,  0.8842f,  -0.8842f, -0.5492f, -0.3069f, -0.0991f,
                           0.0991f,  0.3069f,  0.5492f,  0.8842f};
constexpr size_t k_group = k_kv_scale_group;

struct Group {
  uint16_t scale = 0;  ///< half
  uint8_t codes[k_group] = {};
};

/// Round to nearest even in the low bits: |x| < 2^22.
int32_t round_to_int(float x) {
  return std::bit_cast<int32_t>(x + 0x1.8p23f) - std::bit_cast<int32_t>(0x1.8p23f);
}

/// The scale as it is stored, and by what to multiply to undo it; NaN where it cannot be stored.
float store_scale(float scale, Group& group) {
  group.scale = float_to_half(scale);
  const float stored = half_to_float(group.scale);
  if (!std::isfinite(stored)) {
    group.scale = 0x7E00;
    return 0;
  }
  return stored == 0 ? 0 : 1.0f / stored;
}

void code_q8_0(const float* x, float largest, Group& group) {
  const float inverse = store_scale(largest / 127.0f, group);
  if (inverse == 0) return;
  for (size_t i = 0; i < k_group; ++i) {
    const float code = std::min(127.0f, std::max(-127.0f, x[i] * inverse));
    group.codes[i] = static_cast<uint8_t>(round_to_int(code));
  }
}

/// The number of largest magnitude becomes -8 exactly; of two the positive one.
void code_q4_0(const float* x, float largest, Group& group) {
  const bool positive = std::find(x, x + k_group, largest) != x + k_group;
  const float inverse = store_scale((positive ? largest : -largest) / -8.0f, group);
  for (size_t i = 0; i < k_group; ++i) {
    const float code = std::min(7.0f, std::max(-8.0f, x[i] * inverse));
    group.codes[i] = static_cast<uint8_t>(inverse == 0 ? 8 : round_to_int(code) + 8);
  }
}

/// The nearest level.
template <size_t levels>
void code_nearest(const Codebook& book, const float* x, float largest, Group& group) {
  const float inverse = store_scale(largest, group);
  for (size_t i = 0; i < k_group; ++i) {
    const float value = x[i] * inverse;
    int code = 0;
    for (size_t l = 1; l < levels; ++l) code += value > (book[l - 1] + book[l]) / 2 ? 1 : 0;
    group.codes[i] = static_cast<uint8_t>(code);
  }
}

Group code_group(KvKind kind, const float* x) {
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < k_group; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite &= std::fabs(x[i]) <= std::numeric_limits<float>::max();
  }
  Group group;
  if (!finite) {
    group.scale = 0x7E00;
  } else if (kind == KvKind::q8_0) {
    code_q8_0(x, largest, group);
  } else if (kind == KvKind::q4_0) {
    code_q4_0(x, largest, group);
  } else if (kind == KvKind::nf4) {
    code_nearest<16>(k_nf4, x, largest, group);
  } else {
    code_nearest<8>(k_q3, x, largest, group);
  }
  return group;
}

/// Sign, four bits of exponent (bias 7), three of fraction; no infinity.
uint8_t to_e4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float magnitude = std::min(std::fabs(value), 448.0f);
  if (magnitude < 0x1p-6f) {
    return static_cast<uint8_t>(sign | round_to_int(magnitude * 512.0f));
  }
  auto rounded = std::bit_cast<uint32_t>(magnitude);
  rounded += 0x7FFFF + (rounded >> 20 & 1);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

float from_e4m3(uint8_t code) {
  const uint32_t shifted = uint32_t{code & 0x7Fu} << 20 | uint32_t{code & 0x80u} << 24;
  return std::bit_cast<float>(shifted) * 0x1p120f;
}

uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

template <class T>
T load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
template <class T>
void store_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

/// Where a number stands: its unit, and k and lane in it.
struct Place {
  size_t unit, k, lane;
};

Place place_of(KvTensor tensor, size_t position, size_t d) {
  return tensor == KvTensor::keys ? Place{d / 16, d % 16, position}
                                  : Place{d / 16, position, d % 16};
}

std::byte* scale_at(KvKind kind, size_t head_dim, size_t position, size_t d, std::byte* tile) {
  return tile + (head_dim + 15) / 16 * kv_kind_info(kind).unit_bytes() + d / k_group * 32 +
         position * 2;
}

void put_number(KvKind kind, std::byte* unit, const Place& at, float value) {
  const size_t index = at.k * 16 + at.lane;
  switch (kind) {
    case KvKind::fp32:
      return store_as(unit + 4 * index, value);
    case KvKind::fp16:
      return store_as(unit + 2 * index, float_to_half(value));
    case KvKind::bf16:
      return store_as(unit + 2 * index, to_bfloat16(value));
    default:
      return store_as(unit + index, to_e4m3(value));
  }
}

void put_code(KvKind kind, std::byte* unit, const Place& at, uint8_t code) {
  if (kind == KvKind::q8_0) return store_as(unit + at.k * 16 + at.lane, code);
  if (kind != KvKind::q3) {
    std::byte* word = unit + at.k / 8 * 64 + 4 * at.lane;
    const auto shift = static_cast<uint32_t>(at.k % 8 * 4);
    const auto rest = load_as<uint32_t>(word) & ~(15u << shift);
    return store_as(word, rest | uint32_t{code} << shift);
  }
  const auto set_bits = [&](size_t word, uint32_t shift, uint32_t mask, uint32_t bits) {
    std::byte* half = unit + word * 32 + 2 * at.lane;
    const uint32_t rest = load_as<uint16_t>(half) & ~(mask << shift);
    store_as(half, static_cast<uint16_t>(rest | bits << shift));
  };
  if (at.k < 15) return set_bits(at.k / 5, static_cast<uint32_t>(at.k % 5 * 3), 7, code);
  for (uint32_t j = 0; j < 3; ++j) set_bits(j, 15, 1, code >> j & 1u);
}

int get_code(KvKind kind, const std::byte* unit, const Place& at) {
  if (kind == KvKind::q8_0) return load_as<int8_t>(unit + at.k * 16 + at.lane);
  if (kind != KvKind::q3) {
    return load_as<uint32_t>(unit + at.k / 8 * 64 + 4 * at.lane) >> at.k % 8 * 4 & 15;
  }
  const auto word = [&](size_t j) {
    return uint32_t{load_as<uint16_t>(unit + j * 32 + 2 * at.lane)};
  };
  if (at.k < 15) return static_cast<int>(word(at.k / 5) >> at.k % 5 * 3 & 7);
  return static_cast<int>(word(0) >> 15 | word(1) >> 15 << 1 | word(2) >> 15 << 2);
}

}  // namespace

std::optional<KvKind> kv_kind_from_name(std::string_view name) {
  for (const KvKind kind : k_kv_kinds) {
    if (kv_kind_info(kind).name == name) return kind;
  }
  return std::nullopt;
}

const Codebook& kv_codebook(KvKind kind) {
  return kind == KvKind::q4_0 ? k_q4_0 : kind == KvKind::nf4 ? k_nf4 : k_q3;
}

void kv_store(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, const float* x,
              std::byte* tile) {
  const bool has_scales = kv_kind_info(kind).has_scales;
  for (size_t first = 0; first < head_dim; first += k_group) {
    const size_t count = std::min(k_group, head_dim - first);
    Group group;
    if (has_scales) {
      float padded[k_group] = {};
      std::copy_n(x + first, count, padded);
      group = code_group(kind, padded);
      store_as(scale_at(kind, head_dim, position, first, tile), group.scale);
    }
    for (size_t i = 0; i < count; ++i) {
      const Place place = place_of(tensor, position, first + i);
      std::byte* unit = tile + place.unit * kv_kind_info(kind).unit_bytes();
      if (has_scales) {
        put_code(kind, unit, place, group.codes[i]);
      } else {
        put_number(kind, unit, place, x[first + i]);
      }
    }
  }
}

float kv_read(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, size_t d,
              const std::byte* tile) {
  const Place place = place_of(tensor, position, d);
  const std::byte* unit = tile + place.unit * kv_kind_info(kind).unit_bytes();
  const size_t index = place.k * 16 + place.lane;
  if (kind == KvKind::fp32) return load_as<float>(unit + 4 * index);
  if (kind == KvKind::fp16) return half_to_float(load_as<uint16_t>(unit + 2 * index));
  if (kind == KvKind::bf16) return bfloat16_to_float(load_as<uint16_t>(unit + 2 * index));
  if (kind == KvKind::fp8) return from_e4m3(load_as<uint8_t>(unit + index));
  const auto* at = scale_at(kind, head_dim, position, d, const_cast<std::byte*>(tile));
  const float scale = half_to_float(load_as<uint16_t>(at));
  const int code = get_code(kind, unit, place);
  if (kind == KvKind::q8_0) return static_cast<float>(code) * scale;
  return kv_codebook(kind)[static_cast<size_t>(code)] * scale;
}

}  // namespace outrider::kernels
