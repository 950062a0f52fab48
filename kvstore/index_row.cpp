#include "kvstore/index_row.hpp"

#include <type_traits>

namespace outrider::kvstore {
namespace {

struct Stored {
  uint16_t version = 1;
  uint8_t place = 0;
  uint8_t reserved[5] = {};
  uint64_t ns, tenant, parent, sequence;
  int64_t expires_at, used_at;
  uint32_t bytes, tokens, depth, hits;
  uint64_t unused[2] = {};
  uint64_t check = 0;
};
static_assert(sizeof(Stored) == k_row_bytes && std::is_trivially_copyable_v<Stored>);

uint64_t check_of(const BlockId& id, const Stored& stored) {
  const auto all = std::as_bytes(std::span(&stored, 1));
  return hash64(all.first(offsetof(Stored, check)),
                short_of(id) ^ hash64(std::as_bytes(std::span(id))));
}

}  // namespace

RowBytes encode_row(const BlockId& id, const Row& row) {
  Stored stored{};
  stored.version = 1;
  stored.place = static_cast<uint8_t>(row.place);
  stored.ns = row.ns;
  stored.tenant = row.tenant;
  stored.parent = row.parent;
  stored.sequence = row.sequence;
  stored.expires_at = row.expires_at;
  stored.used_at = row.used_at;
  stored.bytes = row.bytes;
  stored.tokens = row.tokens;
  stored.depth = row.depth;
  stored.hits = row.hits;
  stored.check = check_of(id, stored);
  RowBytes out;
  std::memcpy(out.data(), &stored, sizeof(stored));
  return out;
}

std::optional<Row> decode_row(const BlockId& id, std::span<const std::byte> bytes) {
  if (bytes.size() != k_row_bytes) return std::nullopt;
  Stored stored;
  std::memcpy(&stored, bytes.data(), sizeof(stored));
  if (stored.check != check_of(id, stored) || stored.version != 1 || stored.place > 1) {
    return std::nullopt;
  }
  return Row{stored.ns,
             stored.tenant,
             stored.parent,
             stored.sequence,
             stored.expires_at,
             stored.used_at,
             stored.bytes,
             stored.tokens,
             stored.depth,
             stored.hits,
             static_cast<Place>(stored.place)};
}

}  // namespace outrider::kvstore
