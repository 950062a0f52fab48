#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"

namespace outrider::gateway {

/// The keys that may use this gateway, each with its tenant: as digests, so that a request costs
/// one hash however many keys there are. Immutable after loading.
class ApiKeys {
 public:
  /// No keys: everybody may, as the tenant "".
  ApiKeys() = default;

  /// One key a line, `key` or `tenant:key`; blank lines and lines starting with # are skipped. A
  /// key without a tenant is one of its own, named by the key's digest.
  /// Errors: a file without keys (it would lock everybody out, or open to everybody), a key that
  /// stands there twice, is shorter than limits::api_key_bytes_min or has a space inside.
  static Result<ApiKeys> load(const std::string& path);
  static Result<ApiKeys> parse(std::string_view text);

  bool empty() const { return keys_.empty(); }
  bool has_tenant(std::string_view tenant) const;
  /// "" or the tenant of a key; else an error of the field "admin_tenant".
  Result<void> check_admin(std::string_view tenant) const;
  /// The tenant of a key, or nothing. Time depends on its length and the number of keys only.
  std::optional<std::string> tenant_of(std::string_view key) const;
  /// The same for an Authorization header's value ("Bearer …").
  std::optional<std::string> tenant_of_header(std::optional<std::string_view> authorization) const;

 private:
  struct Key {
    Digest256 digest;
    std::string tenant;
  };
  std::vector<Key> keys_;
};

}  // namespace outrider::gateway
