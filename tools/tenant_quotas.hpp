#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace outrider::tools {

/// Each named tenant is a label of some metrics.
inline constexpr size_t k_tenant_quotas_max = 256;

/// MiB by tenant: NAME=MiB by commas, or nothing. The error says which entry is wrong, and what it
/// should be.
Result<std::map<std::string, uint64_t>> parse_tenant_quotas(std::string_view text);

}  // namespace outrider::tools
