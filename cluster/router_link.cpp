#include "cluster/router_link.hpp"

#include <algorithm>
#include <caf/actor_clock.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "base/clock.hpp"
#include "schema/messages.hpp"
#include "schema/survive.hpp"

namespace outrider::cluster {
namespace {

/// Between two lines in the log on tries that fail.
constexpr Duration k_link_quiet = std::chrono::seconds(10);

class RouterLinkState {
 public:
  RouterLinkState() = default;

  void start(RouterLink::pointer self, RouterLinkSetup setup) {
    self_ = self;
    setup_ = std::move(setup);
    schema::survive_unknown_messages(self_);
    self_->set_down_handler([this](caf::down_msg& down) { lost(down.source); });
    self_->monitor(setup_.worker);
    self_->send(caf::actor_cast<RouterLink>(self_), caf::tick_atom_v);
  }

  void connect() {
    if (router_) return;
    auto router = setup_.wire->reach(setup_.endpoint);
    if (!router) {
      if (const TimePoint at = now(); at >= quiet_until_) {
        setup_.log->warn("no router: {}; trying again", router.error().message);
        quiet_until_ = at + k_link_quiet;
      }
      const bool lasts = router.error().code == ErrorCode::invalid_argument;
      pause_ = lasts ? std::min(2 * pause_, k_reconnect_interval_max) : k_reconnect_interval;
      return try_later();
    }
    quiet_until_ = {};
    pause_ = k_reconnect_interval;
    router_ = std::move(*router);
    setup_.log->info("connected to the router at {}", to_string(setup_.endpoint));
    self_->monitor(router_);
    self_->send(setup_.worker, schema::RouterFound{router_, to_string(setup_.endpoint)});
  }

 private:
  void lost(const caf::actor_addr& actor) {
    if (actor == setup_.worker.address()) return self_->quit();
    if (!router_ || actor != router_.address()) return;
    setup_.log->warn("the router at {} is gone", to_string(setup_.endpoint));
    router_ = nullptr;
    try_later();  // one that is just ending would be found again at once
  }
  void try_later() {
    self_->delayed_send(caf::actor_cast<RouterLink>(self_), pause_, caf::tick_atom_v);
  }
  TimePoint now() const {
    return std::chrono::duration_cast<TimePoint>(self_->clock().now().time_since_epoch());
  }

  RouterLink::pointer self_ = nullptr;
  RouterLinkSetup setup_;
  schema::RouterHandle router_;
  TimePoint quiet_until_{0};  ///< Tries are not told before.
  std::chrono::milliseconds pause_ = k_reconnect_interval;
};

RouterLink::behavior_type router_link(RouterLink::stateful_pointer<RouterLinkState> self,
                                      RouterLinkSetup setup) {
  self->state.start(self, std::move(setup));
  return {[state = &self->state](caf::tick_atom) { state->connect(); }};
}

}  // namespace

RouterLink spawn_router_link(caf::actor_system& system, RouterLinkSetup setup) {
  return system.spawn<caf::detached>(router_link, std::move(setup));
}

}  // namespace outrider::cluster
