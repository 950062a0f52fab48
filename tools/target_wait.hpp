#pragma once

#include <kj/async.h>

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include "schema/handles.hpp"
#include "schema/messages.hpp"

namespace outrider::tools {

/// Looks at a router's workers, each heartbeat, for a first target: the router has those only that
/// serve what it was told to expect.
class TargetWait {
 public:
  TargetWait(caf::actor_system& system, const schema::RouterHandle& router);
  ~TargetWait();
  TargetWait(const TargetWait&) = delete;
  TargetWait& operator=(const TargetWait&) = delete;

  /// Once, on the thread that made it.
  kj::Promise<schema::Announce> found() { return kj::mv(found_); }

 private:
  kj::Promise<schema::Announce> found_ = nullptr;
  caf::actor looker_;
};

}  // namespace outrider::tools
