#include "tests/sim/cluster/proxy.hpp"

#include "tests/sim/cluster/network.hpp"

namespace outrider::sim::cluster {

void Proxy::enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) {
  network_.send(*this, *what);
}

void Proxy::kill_proxy(caf::execution_unit* context, caf::error reason) {
  is_dead_ = true;
  cleanup(std::move(reason), context);
}

caf::strong_actor_ptr actor_behind(const caf::strong_actor_ptr& handle) {
  if (!handle) return nullptr;
  const auto* proxy = dynamic_cast<const Proxy*>(handle->get());
  return proxy == nullptr ? handle : proxy->actor();
}

bool is_dead_proxy(const caf::strong_actor_ptr& handle) {
  if (!handle) return true;
  const auto* proxy = dynamic_cast<const Proxy*>(handle->get());
  return proxy != nullptr && proxy->dead();
}

}  // namespace outrider::sim::cluster
