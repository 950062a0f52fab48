#include "tests/sim/cluster/router_stub.hpp"

#include <memory>
#include <optional>

namespace outrider::sim::cluster {

RouterStub::behavior_type router_stub(RouterStub::pointer self) {
  struct State {
    schema::RouterHandle router;
    std::optional<schema::ServesModel> serves;
  };
  const auto state = std::make_shared<State>();
  const auto pass = [self, state](const auto& message) {
    if (state->router) self->send(state->router, message);
  };
  return {[pass](const schema::PlaceRequest& message) { pass(message); },
          [](const schema::Announce&) {},
          [](const schema::Load&) {},
          [](const schema::LeaseDraft&) {},
          [](const schema::EndLease&) {},
          [pass, state](const schema::ServesModel& message) {
            state->serves = message;
            pass(message);
          },
          [](const schema::ListWorkers&) { return schema::WorkerList(); },
          [pass, state](const schema::RouterFound& found) {
            state->router = found.router;
            if (state->serves) pass(*state->serves);
          }};
}

}  // namespace outrider::sim::cluster
