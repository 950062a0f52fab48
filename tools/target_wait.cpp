#include "tools/target_wait.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <chrono>
#include <set>
#include <utility>

#include "base/limits.hpp"
#include "schema/survive.hpp"

namespace outrider::tools {
namespace {

using Fulfiller = std::shared_ptr<kj::Own<kj::CrossThreadPromiseFulfiller<schema::Announce>>>;

struct LookerState {
  LookerState() = default;

  schema::RouterHandle router;
  TargetWait::Wanted wanted;
  std::shared_ptr<spdlog::logger> log;
  Fulfiller found;
  std::set<uint64_t> unfit;  ///< Workers that were told of.

  /// Whether one of them is it.
  bool look(const schema::WorkerList& list) {
    for (const schema::WorkerInfo& worker : list.workers) {
      const schema::Announce& announce = worker.announce;
      if (announce.role != schema::Role::target || worker.load.leaving) continue;
      if (announce.model == wanted.model && announce.tokenizer == wanted.tokenizer) {
        (*found)->fulfill(schema::Announce(announce));
        return true;
      }
      if (!unfit.insert(announce.worker).second) continue;
      log->warn("{} is not used: it serves \"{}\", here it is to be \"{}\"{}", announce.name,
                announce.model, wanted.model,
                announce.model == wanted.model ? " with another tokenizer" : "");
    }
    return false;
  }
};

caf::behavior looker(caf::stateful_actor<LookerState>* self, schema::RouterHandle router,
                     TargetWait::Wanted wanted, std::shared_ptr<spdlog::logger> log,
                     Fulfiller found) {
  self->state.router = std::move(router);
  self->state.wanted = std::move(wanted);
  self->state.log = std::move(log);
  self->state.found = std::move(found);
  schema::survive_unknown_messages(self);
  self->send(self, caf::tick_atom::value);
  return {[self](caf::tick_atom) {
    self->request(self->state.router, std::chrono::milliseconds(limits::control_timeout_ms),
                  schema::ListWorkers{})
        .then(
            [self](const schema::WorkerList& list) {
              if (self->state.look(list)) self->quit();
            },
            [](const caf::error&) {});  // the next heartbeat asks again
    self->delayed_send(self, std::chrono::milliseconds(limits::heartbeat_interval_ms),
                       caf::tick_atom::value);
  }};
}

}  // namespace

TargetWait::TargetWait(caf::actor_system& system, const schema::RouterHandle& router, Wanted wanted,
                       std::shared_ptr<spdlog::logger> log) {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<schema::Announce>();
  found_ = kj::mv(pair.promise);
  looker_ =
      system.spawn(looker, router, std::move(wanted), std::move(log),
                   std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<schema::Announce>>>(
                       kj::mv(pair.fulfiller)));
}

TargetWait::~TargetWait() {
  caf::anon_send_exit(looker_, caf::exit_reason::user_shutdown);
}

}  // namespace outrider::tools
