#pragma once

#include <caf/typed_event_based_actor.hpp>

#include "schema/messages.hpp"

namespace outrider::sim::cluster {

/// A gateway's way to a router in another process: passes on what its front desk and sessions say
/// to the router that was found last, and tells each one what is served here. What is said while
/// there is none is lost.
using RouterStub = schema::RouterHandle::extend<caf::reacts_to<schema::RouterFound>>;

RouterStub::behavior_type router_stub(RouterStub::pointer self);

}  // namespace outrider::sim::cluster
