#include "actors/block_wire.hpp"

#include <cstring>
#include <string>

#include "base/bytes.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

class Writer {
 public:
  void raw(const void* data, size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
  }
  void number(uint32_t value) { raw(&value, sizeof(value)); }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    raw(value.data(), value.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Up to limits::name_bytes_max characters.
std::optional<std::string> read_text(ByteReader& in) {
  const auto size = in.read<uint32_t>();
  if (!size || *size > limits::name_bytes_max) return std::nullopt;
  const auto text = in.take(*size);
  return text ? std::optional(std::string(as_text(*text))) : std::nullopt;
}

}  // namespace

std::vector<std::byte> encode(const model::CachedQuery& query) {
  Writer out;
  out.raw(query.kv_namespace.data(), query.kv_namespace.size());
  out.text(query.tenant);
  out.text(query.cache_salt);
  out.number(query.first);
  out.number(static_cast<uint32_t>(query.tokens.size()));
  out.raw(query.tokens.data(), query.tokens.size() * sizeof(int32_t));
  return out.take();
}

Result<model::CachedQuery> decode_query(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto kv_namespace = in.read<Digest256>();
  const auto tenant = read_text(in);
  const auto cache_salt = read_text(in);
  const auto first = in.read<uint32_t>();
  const auto count = in.read<uint32_t>();
  const bool is_whole = kv_namespace && tenant && cache_salt && first && count &&
                        in.remaining() == *count * sizeof(int32_t);
  if (!is_whole) return fail(ErrorCode::corrupt, "no query for blocks");
  std::vector<int32_t> tokens(*count);
  const auto rest = in.take(in.remaining());
  if (*count > 0) std::memcpy(tokens.data(), rest->data(), rest->size());
  return model::CachedQuery{*kv_namespace, *tenant, *cache_salt, std::move(tokens), *first};
}

std::vector<std::byte> encode(const model::CachedBlock& block) {
  Writer out;
  out.number(static_cast<uint32_t>(block.k.size()));
  out.raw(block.k.data(), block.k.size());
  out.raw(block.v.data(), block.v.size());
  return out.take();
}

std::optional<BlockView> decode_block(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto k_bytes = in.read<uint32_t>();
  const auto k = k_bytes ? in.take(*k_bytes) : std::nullopt;
  if (!k) return std::nullopt;
  return BlockView{*k, bytes.subspan(in.position())};
}

}  // namespace outrider::actors
