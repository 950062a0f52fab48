#include "kernels/kv_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/half.hpp"

namespace outrider::kernels {
namespace {

using Codebook = std::array<int8_t, 16>;

constexpr Codebook k_nf4 = {-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127};
constexpr Codebook k_q3 = {-112, -70, -39, -13, 13, 39, 70, 112,
                           -112, -70, -39, -13, 13, 39, 70, 112};
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
    group.codes[i] = static_cast<uint8_t>(round_to_int(inverse == 0 ? 0 : code) & 15);
  }
}

/// The nearest level.
template <size_t levels>
void code_nearest(const Codebook& book, const float* x, float largest, Group& group) {
  const float inverse = store_scale(largest / 127.0f, group);
  for (size_t i = 0; i < k_group; ++i) {
    const float value = x[i] * inverse;
    int code = 0;
    for (size_t l = 1; l < levels; ++l) {
      code += 2.0f * value > static_cast<float>(book[l - 1] + book[l]) ? 1 : 0;
    }
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

/// In the tile.
size_t scale_at(KvKind kind, size_t head_dim, size_t position, size_t d) {
  return (head_dim + 15) / 16 * kv_kind_info(kind).unit_bytes() + d / k_group * 32 + position * 2;
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

/// Where the bits of code k stand in its lane's words.
struct CodePlace {
  size_t word;  ///< of 32 bits
  uint32_t shift;
};
constexpr CodePlace code_place(uint32_t bits, size_t k) {
  const size_t pairs = 16 / bits;  // of a word
  return {k / 2 / pairs, static_cast<uint32_t>(k % 2 * 16 + k / 2 % pairs * bits)};
}
/// Bits of a code that stand in words; the third of q3 stands elsewhere.
constexpr uint32_t word_bits(KvKind kind) {
  return kind == KvKind::q3 ? 2 : kv_kind_info(kind).code_bits;
}
constexpr size_t q3_top(size_t lane) {
  return 64 + 2 * lane;
}
constexpr uint32_t q3_top_shift(size_t k) {
  return static_cast<uint32_t>(k % 2 * 8 + k / 2);
}

/// The 16 codes of one lane.
template <KvKind kind>
void put_lane(const uint8_t* codes, size_t lane, std::byte* unit) {
  constexpr uint32_t bits = word_bits(kind);
  uint32_t words[16 * bits / 32] = {};
  uint32_t tops = 0;
  for (size_t k = 0; k < 16; ++k) {
    const CodePlace place = code_place(bits, k);
    words[place.word] |= (codes[k] & ((1u << bits) - 1)) << place.shift;
    tops |= uint32_t{codes[k]} >> bits << q3_top_shift(k);
  }
  for (size_t w = 0; w < std::size(words); ++w) store_as(unit + w * 64 + 4 * lane, words[w]);
  if (kind == KvKind::q3) store_as(unit + q3_top(lane), static_cast<uint16_t>(tops));
}

/// Code k of each of the 16 lanes.
template <KvKind kind>
void put_row(const uint8_t* codes, size_t k, std::byte* unit) {
  constexpr uint32_t bits = word_bits(kind);
  constexpr uint32_t mask = (1u << bits) - 1;
  const CodePlace place = code_place(bits, k);
  for (size_t lane = 0; lane < 16; ++lane) {
    std::byte* at = unit + place.word * 64 + 4 * lane;
    const uint32_t rest = load_as<uint32_t>(at) & ~(mask << place.shift);
    store_as(at, rest | (codes[lane] & mask) << place.shift);
  }
  for (size_t lane = 0; kind == KvKind::q3 && lane < 16; ++lane) {
    const uint32_t rest = load_as<uint16_t>(unit + q3_top(lane)) & ~(1u << q3_top_shift(k));
    store_as(unit + q3_top(lane),
             static_cast<uint16_t>(rest | uint32_t{codes[lane]} >> bits << q3_top_shift(k)));
  }
}

/// `count` <= k_group numbers from element `first` on.
template <KvKind kind>
void store_codes(KvTensor tensor, size_t head_dim, size_t position, size_t first, size_t count,
                 const float* x, std::byte* tile) {
  float padded[k_group] = {};
  std::copy_n(x, count, padded);
  const Group group = code_group(kind, padded);
  store_as(tile + scale_at(kind, head_dim, position, first), group.scale);
  std::byte* unit = tile + first / 16 * kv_kind_info(kind).unit_bytes();
  for (size_t i = 0; i < count; i += 16, unit += kv_kind_info(kind).unit_bytes()) {
    if (tensor == KvTensor::keys) {
      put_lane<kind>(group.codes + i, position, unit);
    } else {
      put_row<kind>(group.codes + i, position, unit);
    }
  }
}

/// The integer that the number is a multiple of.
int get_integer(KvKind kind, const std::byte* unit, const Place& at) {
  const uint32_t bits = word_bits(kind);
  const CodePlace place = code_place(bits, at.k);
  const uint32_t code =
      load_as<uint32_t>(unit + place.word * 64 + 4 * at.lane) >> place.shift & ((1u << bits) - 1);
  if (kind == KvKind::q8_0) return static_cast<int8_t>(code);
  if (kind == KvKind::q4_0) return static_cast<int>(code ^ 8u) - 8;
  if (kind == KvKind::nf4) return k_nf4[code];
  const uint32_t top =
      uint32_t{load_as<uint16_t>(unit + q3_top(at.lane))} >> q3_top_shift(at.k) & 1;
  return k_q3[code | top << bits];
}

}  // namespace

std::optional<KvKind> kv_kind_from_name(std::string_view name) {
  for (const KvKind kind : k_kv_kinds) {
    if (kv_kind_info(kind).name == name) return kind;
  }
  return std::nullopt;
}

const Codebook& kv_codebook(KvKind kind) {
  return kind == KvKind::nf4 ? k_nf4 : k_q3;
}

void kv_store(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, const float* x,
              std::byte* tile) {
  if (!kv_kind_info(kind).has_scales) {
    for (size_t d = 0; d < head_dim; ++d) {
      const Place place = place_of(tensor, position, d);
      put_number(kind, tile + place.unit * kv_kind_info(kind).unit_bytes(), place, x[d]);
    }
    return;
  }
  auto* store = kind == KvKind::q8_0   ? store_codes<KvKind::q8_0>
                : kind == KvKind::q4_0 ? store_codes<KvKind::q4_0>
                : kind == KvKind::nf4  ? store_codes<KvKind::nf4>
                                       : store_codes<KvKind::q3>;
  for (size_t first = 0; first < head_dim; first += k_group) {
    const size_t count = std::min(k_group, head_dim - first);
    store(tensor, head_dim, position, first, count, x + first, tile);
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
  const float scale =
      half_to_float(load_as<uint16_t>(tile + scale_at(kind, head_dim, position, d)));
  return static_cast<float>(get_integer(kind, unit, place)) * scale;
}

}  // namespace outrider::kernels
