#include "actors/session_actor.hpp"

#include <algorithm>
#include <caf/actor_clock.hpp>
#include <caf/stateful_actor.hpp>

#include "schema/survive.hpp"

namespace outrider::actors {
namespace {

/// A pending timer keeps its actor in memory: no longer than this after the session's end.
constexpr Duration k_timer_max = std::chrono::seconds(1);

}  // namespace

class SessionState::Ports final : public SessionPorts {
 public:
  Ports(SessionActor::pointer self, schema::RouterHandle router)
      : self_(self), router_(std::move(router)) {}

  /// A target outlives its sessions: with the monitor it would keep a dead one's memory.
  ~Ports() override {
    for (const caf::actor_addr& target : watched_) self_->demonitor(target);
  }

  void place(schema::PlaceRequest request) override {
    request.reply_to = caf::actor_cast<schema::SessionHandle>(self_);
    self_->send(router_, std::move(request));
  }
  void tell(const schema::TargetHandle& target, ToTarget message) override {
    std::visit([&](auto&& body) { send(target, std::forward<decltype(body)>(body)); },
               std::move(message));
  }
  void watch(const schema::TargetHandle& target) override {
    self_->monitor(target);
    watched_.push_back(target.address());
  }

 private:
  void send(const schema::TargetHandle& target, schema::SubmitBegin&& begin) {
    begin.session = caf::actor_cast<schema::SessionHandle>(self_);
    self_->send(target, std::move(begin));
  }
  template <class Message>
  void send(const schema::TargetHandle& target, Message&& message) {
    self_->send(target, std::move(message));
  }

  SessionActor::pointer self_;
  schema::RouterHandle router_;
  std::vector<caf::actor_addr> watched_;
};

void SessionState::start(SessionActor::pointer self, schema::RouterHandle router,
                         SessionSetup setup) {
  self_ = self;
  schema::survive_unknown_messages(self_);
  self_->set_down_handler([this](caf::down_msg& down) {
    machine_->on_down(down.source, now());
    settle();
  });
  ports_ = std::make_unique<Ports>(self, std::move(router));
  machine_ = std::make_unique<SessionMachine>(std::move(setup), *ports_, now());
  settle();
}

TimePoint SessionState::now() const {
  return std::chrono::duration_cast<TimePoint>(self_->clock().now().time_since_epoch());
}

void SessionState::settle() {
  if (machine_->ended()) return self_->quit();
  const TimePoint latest = now() + k_timer_max;
  const TimePoint due = std::min(machine_->next_due().value_or(latest), latest);
  if (timer_ != TimePoint{0} && timer_ <= due) return;
  timer_ = due;
  self_->delayed_send(caf::actor_cast<SessionActor>(self_), std::max(due - now(), Duration{0}),
                      caf::tick_atom_v);
}

template <class Message>
void SessionState::handle(const Message& message) {
  machine_->on(message, now());
  settle();
}

SessionActor::behavior_type SessionState::make_behavior() {
  return {
      [this](const schema::PlaceReply& message) { handle(message); },
      [this](const schema::Accepted& message) { handle(message); },
      [this](const schema::Rejected& message) { handle(message); },
      [this](const schema::Leaving& message) { handle(message); },
      [this](const schema::Tokens& message) { handle(message); },
      [this](const schema::Done& message) { handle(message); },
      [this](const schema::CancelSession&) {
        machine_->on_cancel();
        settle();
      },
      [this](const schema::ResumeSession&) {
        machine_->on_resume(now());
        settle();
      },
      [this](caf::tick_atom) {
        if (now() < timer_) return;  // Sent before something became due earlier.
        timer_ = TimePoint{0};
        machine_->on_time(now());
        settle();
      },
  };
}

SessionActor::behavior_type session_actor(SessionActor::stateful_pointer<SessionState> self,
                                          schema::RouterHandle router, SessionSetup setup) {
  self->state.start(self, std::move(router), std::move(setup));
  return self->state.make_behavior();
}

}  // namespace outrider::actors
