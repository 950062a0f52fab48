#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "schema/handles.hpp"
#include "schema/messages.hpp"

namespace outrider::tools {

/// The router's list of workers and the front desk's count of sessions, as of the last heartbeat:
/// asked for by an actor of its own, so that nobody waits for an answer. start, stop and is_started
/// are for the KJ thread, the rest for any.
class ClusterView : public std::enable_shared_from_this<ClusterView> {
 public:
  struct Snapshot {
    schema::WorkerList members;
    uint32_t sessions_open = 0;
  };

  /// Again once there is a front desk.
  void start(caf::actor_system& system, const schema::RouterHandle& router,
             const schema::FrontDeskHandle& front_desk = {});
  void stop();
  bool is_started() const { return poller_ != nullptr; }
  Snapshot snapshot() const;

  void set_members(schema::WorkerList members);
  void set_sessions(uint32_t open);

 private:
  mutable std::mutex mutex_;
  Snapshot snapshot_;
  caf::actor poller_;
};

}  // namespace outrider::tools
