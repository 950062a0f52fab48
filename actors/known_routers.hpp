#pragma once

#include <algorithm>
#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schema/messages.hpp"

namespace outrider::actors {

/// The routers that a worker reports to: each gateway of a cluster has one. They know nothing of
/// each other; the first one leases drafts, for as long as it is there. One that refuses the worker
/// is none of them until it is found again. Over another connection a router has an equal address,
/// but is another actor here: the loss of the old one may be heard of after the new one is found.
class KnownRouters {
 public:
  /// So many are to be found.
  explicit KnownRouters(size_t wanted) : wanted_(wanted) {}

  /// False: it is known, over this connection. `gate` is where lines to its process are dialled.
  bool add(const schema::RouterHandle& router, const std::string& gate = {}) {
    const auto known = find(router.address());
    if (known != routers_.end() && is_same(*known, router.address())) return false;
    refusing_.erase(router.address());
    gates_[router.address()] = gate;
    if (known != routers_.end()) {
      *known = router;
    } else {
      routers_.push_back(router);
    }
    return true;
  }
  /// It is gone. Whether it was one of them, and not just found again.
  bool remove(const caf::actor_addr& router) {
    const auto known = find(router);
    if (known != routers_.end() && !is_same(*known, router)) return false;
    refusing_.erase(router);
    return drop(router);
  }
  /// For people.
  std::string name_of(const caf::actor_addr& router) const {
    const auto found = gates_.find(router);
    return found == gates_.end() || found->second.empty() ? "a router"
                                                          : "the router at " + found->second;
  }
  /// It will not have the worker. Whether nobody is left who might.
  bool refused_by(const caf::actor_addr& router) {
    drop(router);
    refusing_.insert(router);
    return refusing_.size() >= wanted_;
  }

  const std::vector<schema::RouterHandle>& all() const { return routers_; }
  /// Null: there is none.
  schema::RouterHandle first() const {
    return routers_.empty() ? schema::RouterHandle() : routers_.front();
  }
  /// Null: none of them is in the process of that actor.
  template <class Handle>
  schema::RouterHandle beside(const Handle& actor) const {
    const auto found = std::find_if(routers_.begin(), routers_.end(), [&](const auto& router) {
      return router.node() == actor.node();
    });
    return found == routers_.end() ? schema::RouterHandle() : *found;
  }
  /// None: it is not known.
  std::optional<std::string> gate_of(const schema::RouterHandle& router) const {
    const auto found = gates_.find(router.address());
    return found == gates_.end() ? std::nullopt : std::optional(found->second);
  }
  bool is_first(const caf::actor_addr& router) const {
    return !routers_.empty() && routers_.front().address() == router;
  }

 private:
  std::vector<schema::RouterHandle>::iterator find(const caf::actor_addr& router) {
    return std::find_if(routers_.begin(), routers_.end(),
                        [&](const auto& known) { return known.address() == router; });
  }
  static bool is_same(const schema::RouterHandle& known, const caf::actor_addr& router) {
    return caf::actor_cast<caf::actor_control_block*>(known) ==
           caf::actor_cast<caf::actor_control_block*>(router);
  }

  bool drop(const caf::actor_addr& router) {
    const auto found = find(router);
    if (found == routers_.end()) return false;
    routers_.erase(found);
    gates_.erase(router);
    return true;
  }

  size_t wanted_;
  std::vector<schema::RouterHandle> routers_;
  std::map<caf::actor_addr, std::string> gates_;
  std::set<caf::actor_addr> refusing_;
};

}  // namespace outrider::actors
