#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <memory>

#include "actors/session_machine.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

/// A session's mailbox as its own timer sees it.
using SessionActor = schema::SessionHandle::extend<caf::reacts_to<caf::tick_atom>>;

/// Thin shell around SessionMachine: mailbox, monitor and clock in, sends out. Quits when the
/// machine has ended; if it is killed before, the client still gets its terminal event.
class SessionState {
 public:
  SessionState() = default;

  void start(SessionActor::pointer self, schema::RouterHandle router, SessionSetup setup);
  SessionActor::behavior_type make_behavior();

 private:
  class Ports;

  TimePoint now() const;
  /// After each event: quit at the end, else keep a timer for what is due next.
  void settle();
  template <class Message>
  void handle(const Message& message);

  SessionActor::pointer self_ = nullptr;
  std::unique_ptr<SessionPorts> ports_;
  std::unique_ptr<SessionMachine> machine_;
  TimePoint timer_{0};  ///< When the next tick comes; 0: none is under way.
};

SessionActor::behavior_type session_actor(SessionActor::stateful_pointer<SessionState> self,
                                          schema::RouterHandle router, SessionSetup setup);

}  // namespace outrider::actors
