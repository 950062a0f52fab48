#pragma once

#include <algorithm>
#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>
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
  /// So many gates lead to them; two may lead to one router.
  explicit KnownRouters(size_t wanted) : wanted_(wanted) {}

  /// False: it is known, over this connection. `gate` is where lines to its process are dialled.
  bool add(const schema::RouterHandle& router, const std::string& gate = {}) {
    std::erase_if(behind_, [&](const Behind& it) {
      return it.gate == gate && (!gate.empty() || it.router == router.address());
    });
    behind_.push_back({gate, router.address()});
    for (Behind& it : behind_) {  // whichever gate it was found at before
      if (it.router == router.address()) it.router = router.address();
    }
    const auto known = find(router.address());
    if (known != routers_.end() && is_same(*known, router.address())) return false;
    refusing_.erase(router.address());
    if (known != routers_.end()) {
      *known = router;
    } else {
      routers_.push_back(router);
    }
    return true;
  }
  /// It is gone. Whether it was one of them, and not just found again.
  bool remove(const caf::actor_addr& router) {
    const bool is_found_again = std::ranges::any_of(behind_, [&](const Behind& it) {
      return it.router == router && !is_same(it.router, router);
    });
    if (is_found_again) return false;
    refusing_.erase(router);
    std::erase_if(behind_, [&](const Behind& it) { return it.router == router; });
    return drop(router);
  }
  /// For people.
  std::string name_of(const caf::actor_addr& router) const {
    const auto gate = find_gate(router);
    return !gate || gate->empty() ? "a router" : "the router at " + *gate;
  }
  /// It will not have the worker. Whether nobody is left who might, whatever gate leads there.
  bool refused_by(const caf::actor_addr& router) {
    drop(router);
    refusing_.insert(router);
    const auto refuses = [&](const Behind& it) { return refusing_.contains(it.router); };
    return static_cast<size_t>(std::ranges::count_if(behind_, refuses)) >= wanted_;
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
    return refusing_.contains(router.address()) ? std::nullopt : find_gate(router.address());
  }
  bool is_first(const caf::actor_addr& router) const {
    return !routers_.empty() && routers_.front().address() == router;
  }

 private:
  /// Who was found last at one gate; each of those without a gate is one of its own.
  struct Behind {
    std::string gate;
    caf::actor_addr router;
  };

  std::optional<std::string> find_gate(const caf::actor_addr& router) const {
    const auto found = std::ranges::find(behind_, router, &Behind::router);
    return found == behind_.end() ? std::nullopt : std::optional(found->gate);
  }
  std::vector<schema::RouterHandle>::iterator find(const caf::actor_addr& router) {
    return std::find_if(routers_.begin(), routers_.end(),
                        [&](const auto& known) { return known.address() == router; });
  }
  template <class Handle>
  static bool is_same(const Handle& known, const caf::actor_addr& router) {
    return caf::actor_cast<caf::actor_control_block*>(known) ==
           caf::actor_cast<caf::actor_control_block*>(router);
  }

  bool drop(const caf::actor_addr& router) {
    const auto found = find(router);
    if (found == routers_.end()) return false;
    routers_.erase(found);
    return true;
  }

  size_t wanted_;
  std::vector<schema::RouterHandle> routers_;
  std::vector<Behind> behind_;
  std::set<caf::actor_addr> refusing_;
};

}  // namespace outrider::actors
