#pragma once

#include <string>
#include <string_view>

namespace outrider::gateway {

/// Who looks at pages that have figures of tenants: everybody sees all of them where there are no
/// API keys, the admin tenant always, any other tenant its own.
struct Viewer {
  bool sees_all = false;
  std::string tenant = {};  ///< "": none

  bool sees(std::string_view name) const { return sees_all || (!tenant.empty() && name == tenant); }
};

/// Prometheus' text without the series of tenants that the viewer does not see.
std::string visible_metrics(std::string text, const Viewer& viewer);

}  // namespace outrider::gateway
