#include "gateway/api_keys.hpp"

#include <algorithm>
#include <map>

#include "base/limits.hpp"
#include "base/regular_file.hpp"
#include "base/utf8.hpp"

namespace outrider::gateway {
namespace {

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

Error wrong_line(size_t number, const std::string& what) {
  return fail(ErrorCode::invalid_argument,
              "line " + std::to_string(number) + " of the API key file " + what, "api_key_file");
}

/// What follows "line 3 of the API key file", or nothing. Never the key itself: this is logged.
std::string wrong_with(std::string_view key, std::string_view tenant) {
  if (key.empty() || tenant.empty() || tenant.size() > limits::name_bytes_max) {
    return "is not name:key";
  }
  if (!utf8_valid(tenant)) return "has a name that is not valid UTF-8";
  if (std::ranges::any_of(key, [](char c) { return (c >= 0 && c <= ' ') || c == 0x7f; })) {
    return "has a key with a space or a control character inside";
  }
  if (key.size() < limits::api_key_bytes_min) {
    return "has a key of " + std::to_string(key.size()) + " bytes, the least is " +
           std::to_string(limits::api_key_bytes_min);
  }
  return {};
}

/// The same wherever the key stands, since what a tenant stored outlives edits of the file.
std::string name_of(std::string_view key) {
  constexpr size_t k_digits = 16;
  return "key-" + to_hex(sha256(key)).substr(0, k_digits);
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::string& path) {
  const auto text = read_regular_file(path, limits::api_key_file_bytes_max);
  if (text) return parse(*text);
  return fail(ErrorCode::invalid_argument,
              "cannot read the API key file " + path + ": " + text.error().message, "api_key_file");
}

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  ApiKeys out;
  size_t number = 0;
  std::map<std::string_view, size_t> lines;  // of each key
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const auto colon = line.find(':');
    const bool named = colon != std::string_view::npos;
    const auto key = named ? trim(line.substr(colon + 1)) : line;
    const std::string tenant = named ? std::string(trim(line.substr(0, colon))) : name_of(key);
    if (const auto what = wrong_with(key, tenant); !what.empty()) return wrong_line(number, what);
    const auto [first, fresh] = lines.emplace(key, number);
    if (!fresh) return wrong_line(number, "has the key of line " + std::to_string(first->second));
    if (out.keys_.size() >= limits::api_keys_max) {
      return fail(ErrorCode::too_large,
                  "the API key file has over " + std::to_string(limits::api_keys_max) + " keys",
                  "api_key_file");
    }
    out.keys_.push_back({sha256(key), tenant});
  }
  if (out.keys_.empty()) {
    return fail(ErrorCode::invalid_argument, "the API key file holds no key", "api_key_file");
  }
  return out;
}

bool ApiKeys::has_tenant(std::string_view tenant) const {
  return std::ranges::any_of(keys_, [&](const Key& key) { return key.tenant == tenant; });
}

Result<void> ApiKeys::check_admin(std::string_view tenant) const {
  if (tenant.empty() || has_tenant(tenant)) return {};
  return fail(ErrorCode::invalid_argument,
              "admin-tenant: the API key file has no key of \"" + std::string(tenant) + "\"",
              "admin_tenant");
}

std::optional<std::string> ApiKeys::tenant_of(std::string_view key) const {
  if (keys_.empty()) return std::string();
  const Digest256 digest = sha256(key);
  const Key* found = nullptr;
  for (const auto& candidate : keys_) {
    // No early exit: which key matched, and whether one did, must not show in the time.
    if (constant_time_equal(candidate.digest, digest)) found = &candidate;
  }
  if (!found) return std::nullopt;
  return found->tenant;
}

std::optional<std::string> ApiKeys::tenant_of_header(
    std::optional<std::string_view> authorization) const {
  if (keys_.empty()) return std::string();
  if (!authorization) return std::nullopt;
  constexpr std::string_view k_scheme = "bearer ";
  if (authorization->size() < k_scheme.size()) return std::nullopt;
  for (size_t i = 0; i < k_scheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>((*authorization)[i])) != k_scheme[i]) {
      return std::nullopt;
    }
  }
  return tenant_of(trim(authorization->substr(k_scheme.size())));
}

}  // namespace outrider::gateway
