#include "tools/target_wait.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "base/limits.hpp"
#include "schema/survive.hpp"

namespace outrider::tools {
namespace {

using Fulfiller = std::shared_ptr<kj::Own<kj::CrossThreadPromiseFulfiller<schema::Announce>>>;

/// Whether there is one.
bool look(const schema::WorkerList& list, const Fulfiller& found) {
  for (const schema::WorkerInfo& worker : list.workers) {
    if (worker.announce.role != schema::Role::target || worker.load.takes_none()) continue;
    (*found)->fulfill(schema::Announce(worker.announce));
    return true;
  }
  return false;
}

caf::behavior looker(caf::event_based_actor* self, const schema::RouterHandle& router,
                     const Fulfiller& found) {
  schema::survive_unknown_messages(self);
  self->send(self, caf::tick_atom::value);
  return {[self, router, found](caf::tick_atom) {
    self->request(router, std::chrono::milliseconds(limits::control_timeout_ms),
                  schema::ListWorkers{})
        .then(
            [self, found](const schema::WorkerList& list) {
              if (look(list, found)) self->quit();
            },
            [](const caf::error&) {});  // the next heartbeat asks again
    self->delayed_send(self, std::chrono::milliseconds(limits::heartbeat_interval_ms),
                       caf::tick_atom::value);
  }};
}

}  // namespace

TargetWait::TargetWait(caf::actor_system& system, const schema::RouterHandle& router) {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<schema::Announce>();
  found_ = kj::mv(pair.promise);
  looker_ =
      system.spawn(looker, router,
                   std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<schema::Announce>>>(
                       kj::mv(pair.fulfiller)));
}

TargetWait::~TargetWait() {
  caf::anon_send_exit(looker_, caf::exit_reason::user_shutdown);
}

}  // namespace outrider::tools
