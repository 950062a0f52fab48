#include "base/block_id.hpp"

#include <string>

namespace outrider {
namespace {

void append_field(std::string& message, std::string_view value) {
  const uint64_t length = value.size();
  message.append(reinterpret_cast<const char*>(&length), sizeof(length));
  message.append(value);
}

}  // namespace

FieldDigest& FieldDigest::field(std::string_view name, std::string_view value) {
  hash_.update(uint64_t{name.size()}).update(name).update(uint64_t{value.size()}).update(value);
  return *this;
}

FieldDigest& FieldDigest::field(std::string_view name, uint64_t value) {
  return field(name, std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
}

BlockId root_block_id(std::string_view secret, const Digest256& kv_namespace,
                      const SharingScope& scope) {
  std::string message;
  append_field(message, {reinterpret_cast<const char*>(kv_namespace.data()), kv_namespace.size()});
  append_field(message, scope.tenant.empty() ? "public" : "tenant");
  append_field(message, scope.tenant);
  append_field(message, scope.salt);
  return hmac_sha256(secret, message);
}

BlockId BlockHasher::child(const BlockId& parent, std::span<const int32_t> tokens,
                           std::string_view extras) {
  hash_.restart();
  hash_.update(std::as_bytes(std::span(parent)))
      .update(uint64_t{tokens.size()})
      .update(std::as_bytes(tokens))
      .update(uint64_t{extras.size()})
      .update(extras);
  return hash_.finish();
}

}  // namespace outrider
