#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "kvstore/record.hpp"

namespace outrider::kvstore {

/// Where a record lies: in the large FIFO family, or in the small one that nothing falls out of.
enum class Place : uint8_t { fifo = 0, pinned = 1 };

/// What the index knows of a record. Times are seconds since 1970.
struct Row {
  uint64_t ns = 0;         ///< short(namespace)
  uint64_t tenant = 0;     ///< tenant_number(name)
  uint64_t parent = 0;     ///< short(parent id)
  uint64_t sequence = 0;   ///< of the write into the FIFO: what is older than its files is gone
  int64_t expires_at = 0;  ///< 0: never
  int64_t used_at = 0;
  uint32_t bytes = 0;  ///< of the encoded record
  uint32_t tokens = 0;
  uint32_t depth = 0;
  uint32_t hits = 0;
  Place place = Place::fifo;

  friend bool operator==(const Row&, const Row&) = default;
};

inline constexpr size_t k_row_bytes = 96;
using RowBytes = std::array<std::byte, k_row_bytes>;

/// The row as it is stored; its check sum covers the id it belongs to.
RowBytes encode_row(const BlockId& id, const Row& row);
std::optional<Row> decode_row(const BlockId& id, std::span<const std::byte> bytes);

/// The first eight bytes: enough to tell what is not hostile apart.
inline uint64_t short_of(const Digest256& digest) {
  uint64_t value = 0;
  std::memcpy(&value, digest.data(), sizeof(value));
  return value;
}

/// The later of two ends; 0 is never, which is the latest.
inline int64_t later_of(int64_t a, int64_t b) {
  return a == 0 || b == 0 ? 0 : std::max(a, b);
}

/// The account of a tenant.
inline uint64_t tenant_number(std::string_view name) {
  return short_of(sha256(name));
}

}  // namespace outrider::kvstore
