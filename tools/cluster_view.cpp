#include "tools/cluster_view.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <chrono>

#include "base/limits.hpp"

namespace outrider::tools {
namespace {

struct PollerState {
  PollerState() = default;
  std::shared_ptr<ClusterView> view;
  schema::RouterHandle router;
  schema::FrontDeskHandle front_desk;
};

caf::behavior poller(caf::stateful_actor<PollerState>* self, std::shared_ptr<ClusterView> view,
                     schema::RouterHandle router, schema::FrontDeskHandle front_desk) {
  self->state.view = std::move(view);
  self->state.router = std::move(router);
  self->state.front_desk = std::move(front_desk);
  self->send(self, caf::tick_atom::value);
  return {[self](caf::tick_atom) {
    const std::chrono::milliseconds timeout(limits::control_timeout_ms);
    const auto ignore = [](const caf::error&) {};  // the next heartbeat asks again
    self->request(self->state.router, timeout, schema::ListWorkers{})
        .then([self](schema::WorkerList& list) { self->state.view->set_members(std::move(list)); },
              ignore);
    if (self->state.front_desk) {
      self->request(self->state.front_desk, timeout, schema::CountSessions{})
          .then(
              [self](const schema::SessionCount& count) {
                self->state.view->set_sessions(count.open);
              },
              ignore);
    }
    self->delayed_send(self, std::chrono::milliseconds(limits::heartbeat_interval_ms),
                       caf::tick_atom::value);
  }};
}

}  // namespace

void ClusterView::start(caf::actor_system& system, const schema::RouterHandle& router,
                        const schema::FrontDeskHandle& front_desk) {
  stop();
  poller_ = system.spawn(poller, shared_from_this(), router, front_desk);
}

void ClusterView::stop() {
  if (poller_) caf::anon_send_exit(poller_, caf::exit_reason::user_shutdown);
  poller_ = nullptr;
}

ClusterView::Snapshot ClusterView::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

void ClusterView::set_members(schema::WorkerList members) {
  const std::lock_guard lock(mutex_);
  snapshot_.members = std::move(members);
}

void ClusterView::set_sessions(uint32_t open) {
  const std::lock_guard lock(mutex_);
  snapshot_.sessions_open = open;
}

}  // namespace outrider::tools
