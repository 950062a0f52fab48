#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <map>
#include <vector>

#include "base/limits.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

struct FrontDeskSetup {
  schema::RouterHandle router;
  std::vector<schema::Served> models;  ///< By the names that workers announce.
  uint32_t sessions_max = limits::sessions_open_max;
};

/// Spawns a session per request and passes cancel and resume on. Each OpenSession gets its one
/// terminal event, from its session or, if refused, from here. However the desk ends, its sessions
/// end too (as `failed`).
class FrontDeskState {
 public:
  FrontDeskState() = default;
  ~FrontDeskState();

  void start(schema::FrontDeskHandle::pointer self, FrontDeskSetup setup);
  schema::FrontDeskHandle::behavior_type make_behavior();

 private:
  void open(const schema::OpenSession& message);
  Result<void> admit(const schema::OpenSession& message) const;
  void closed(const caf::actor_addr& session);

  schema::FrontDeskHandle::pointer self_ = nullptr;
  FrontDeskSetup setup_;
  std::map<uint64_t, schema::SessionHandle> sessions_;
  std::map<caf::actor_addr, uint64_t> ids_;
};

schema::FrontDeskHandle::behavior_type front_desk(
    schema::FrontDeskHandle::stateful_pointer<FrontDeskState> self, FrontDeskSetup setup);

}  // namespace outrider::actors
