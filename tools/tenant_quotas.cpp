#include "tools/tenant_quotas.hpp"

#include <algorithm>

#include "base/comma_list.hpp"
#include "base/limits.hpp"
#include "base/sampling_ranges.hpp"
#include "tools/parse_number.hpp"

namespace outrider::tools {
namespace {

constexpr IntegerRange k_quota_mb = {1, 1 << 24};

Error wrong(std::string_view entry, const std::string& what) {
  return fail(ErrorCode::invalid_argument, "\"" + std::string(entry) + "\" " + what);
}

}  // namespace

Result<std::map<std::string, uint64_t>> parse_tenant_quotas(std::string_view text) {
  std::map<std::string, uint64_t> out;
  if (trimmed(text).empty()) return out;
  for (const std::string_view entry : comma_list(text)) {
    const size_t equals = entry.rfind('=');
    const std::string_view name = trimmed(entry.substr(0, std::min(equals, entry.size())));
    if (equals == std::string_view::npos || name.empty() || name.size() > limits::name_bytes_max) {
      return wrong(entry, "is not NAME=MiB");
    }
    uint64_t mb = 0;
    if (!parse_number(trimmed(entry.substr(equals + 1)), k_quota_mb, mb)) {
      return wrong(entry, "does not end in " + describe(k_quota_mb) + " MiB");
    }
    if (!out.emplace(name, mb).second) return wrong(name, "has two quotas");
    if (out.size() > k_tenant_quotas_max) {
      return wrong(name, "is one tenant more than " + std::to_string(k_tenant_quotas_max));
    }
  }
  return out;
}

}  // namespace outrider::tools
