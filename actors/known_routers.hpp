#pragma once

#include <algorithm>
#include <caf/actor_addr.hpp>
#include <vector>

#include "schema/messages.hpp"

namespace outrider::actors {

/// The routers that a worker reports to: each gateway of a cluster has one. They know nothing of
/// each other; the first one leases drafts, for as long as it is there.
class KnownRouters {
 public:
  /// False: it is known.
  bool add(const schema::RouterHandle& router) {
    if (find(router.address()) != routers_.end()) return false;
    routers_.push_back(router);
    return true;
  }
  /// Whether it was one of them.
  bool remove(const caf::actor_addr& router) {
    const auto found = find(router);
    if (found == routers_.end()) return false;
    routers_.erase(found);
    return true;
  }

  const std::vector<schema::RouterHandle>& all() const { return routers_; }
  /// Null: there is none.
  schema::RouterHandle first() const {
    return routers_.empty() ? schema::RouterHandle() : routers_.front();
  }
  bool is_first(const caf::actor_addr& router) const {
    return !routers_.empty() && routers_.front().address() == router;
  }

 private:
  std::vector<schema::RouterHandle>::const_iterator find(const caf::actor_addr& router) const {
    return std::find_if(routers_.begin(), routers_.end(),
                        [&](const auto& known) { return known.address() == router; });
  }

  std::vector<schema::RouterHandle> routers_;
};

}  // namespace outrider::actors
