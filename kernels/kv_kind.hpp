#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outrider::kernels {

/// How cached keys and values are coded (kernels/kv_codec.hpp). All but fp32 round them, once, when
/// they are stored; what attention makes of the rounded numbers is exact again. Those with scales
/// have one in half precision per 32 numbers of a head.
enum class KvKind : uint8_t { fp32, fp16, bf16, fp8, q8_0, q4_0, nf4, q3 };
inline constexpr KvKind k_kv_kinds[] = {KvKind::fp32, KvKind::fp16, KvKind::bf16, KvKind::fp8,
                                        KvKind::q8_0, KvKind::q4_0, KvKind::nf4,  KvKind::q3};
enum class KvTensor : uint8_t { keys, values };

struct KvKindInfo {
  std::string_view name;
  uint32_t code_bits = 0;
  bool has_scales = false;

  /// 16 numbers of 16 lanes.
  constexpr size_t unit_bytes() const { return size_t{32} * code_bits; }
};

constexpr KvKindInfo kv_kind_info(KvKind kind) {
  constexpr KvKindInfo infos[] = {{"fp32", 32, false}, {"fp16", 16, false}, {"bf16", 16, false},
                                  {"fp8", 8, false},   {"q8_0", 8, true},   {"q4_0", 4, true},
                                  {"nf4", 4, true},    {"q3", 3, true}};
  return infos[static_cast<size_t>(kind)];
}
constexpr std::string_view kv_kind_name(KvKind kind) {
  return kv_kind_info(kind).name;
}
std::optional<KvKind> kv_kind_from_name(std::string_view name);

/// Kinds of keys and of values. `k_hadamard`: keys, and the queries that meet them, are multiplied
/// by an orthonormal Hadamard matrix behind the rotary embedding (RopeParams::hadamard): scores
/// stay what they are but for rounding, while a key's large numbers spread over its head.
struct KvKinds {
  KvKind k = KvKind::fp16;
  KvKind v = KvKind::fp16;
  bool k_hadamard = false;

  /// Hadamard matrices are made for powers of two.
  constexpr bool suit(uint32_t head_dim) const {
    return !k_hadamard || std::has_single_bit(head_dim);
  }

  friend bool operator==(const KvKinds&, const KvKinds&) = default;
};

/// Numbers of a head that share a scale.
inline constexpr size_t k_kv_scale_group = 32;

/// Keys or values of one head at 16 positions.
constexpr size_t kv_tile_bytes(KvKind kind, size_t head_dim) {
  const KvKindInfo info = kv_kind_info(kind);
  const size_t scales =
      info.has_scales ? (head_dim + k_kv_scale_group - 1) / k_kv_scale_group * 32 : 0;
  return (head_dim + 15) / 16 * info.unit_bytes() + scales;
}

}  // namespace outrider::kernels
