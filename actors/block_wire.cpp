#include "actors/block_wire.hpp"

#include <cstring>
#include <string>
#include <type_traits>

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

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool raw(void* data, size_t size) {
    if (bytes_.size() < size) return false;
    if (size != 0) std::memcpy(data, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return true;
  }
  bool number(uint32_t& value) { return raw(&value, sizeof(value)); }
  /// Up to `max` characters.
  bool text(std::string& value, size_t max) {
    uint32_t size = 0;
    if (!number(size) || size > max || size > bytes_.size()) return false;
    value.resize(size);
    return raw(value.data(), size);
  }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

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
  model::CachedQuery query;
  Reader in(bytes);
  uint32_t tokens = 0;
  const bool good = in.raw(query.kv_namespace.data(), query.kv_namespace.size()) &&
                    in.text(query.tenant, limits::name_bytes_max) &&
                    in.text(query.cache_salt, limits::name_bytes_max) && in.number(query.first) &&
                    in.number(tokens) && in.rest().size() == tokens * sizeof(int32_t);
  if (!good) return fail(ErrorCode::corrupt, "no query for blocks");
  query.tokens.resize(tokens);
  in.raw(query.tokens.data(), in.rest().size());
  return query;
}

std::vector<std::byte> encode(const model::CachedBlock& block) {
  Writer out;
  out.number(static_cast<uint32_t>(block.k.size()));
  out.raw(block.k.data(), block.k.size());
  out.raw(block.v.data(), block.v.size());
  return out.take();
}

std::optional<BlockView> decode_block(std::span<const std::byte> bytes) {
  Reader in(bytes);
  uint32_t k_bytes = 0;
  if (!in.number(k_bytes) || k_bytes > in.rest().size()) return std::nullopt;
  return BlockView{in.rest().first(k_bytes), in.rest().subspan(k_bytes)};
}

}  // namespace outrider::actors
