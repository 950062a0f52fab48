#include "actors/front_desk.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include "actors/session_actor.hpp"
#include "schema/survive.hpp"

namespace outrider::actors {
FrontDeskState::~FrontDeskState() {
  for (const auto& [id, session] : sessions_) {
    caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
  }
}

void FrontDeskState::start(schema::FrontDeskHandle::pointer self, FrontDeskSetup setup) {
  self_ = self;
  setup_ = std::move(setup);
  schema::survive_unknown_messages(self_);
  self_->set_down_handler([this](caf::down_msg& down) { closed(down.source); });
  self_->send(setup_.router, schema::ServesModel{setup_.models});
}

Result<void> FrontDeskState::admit(const schema::OpenSession& message) const {
  if (sessions_.size() >= setup_.sessions_max) {
    return fail(ErrorCode::overloaded,
                "all " + std::to_string(setup_.sessions_max) + " request slots are taken");
  }
  if (!message.request || message.request->choices == 0 || message.request->prompt.empty()) {
    return fail(ErrorCode::invalid_argument, "a request needs a prompt and a choice", "prompt");
  }
  if (sessions_.count(message.session) != 0) {
    return fail(ErrorCode::internal, "two requests with the same session id");
  }
  return {};
}

void FrontDeskState::open(const schema::OpenSession& message) {
  if (const auto admitted = admit(message); !admitted) {
    schema::StreamDone done;
    done.outcome = schema::StreamDone::Outcome::rejected;
    done.error = admitted.error();
    if (admitted.error().code == ErrorCode::overloaded) {
      done.retry_after_ms = limits::retry_after_ms;
    }
    message.stream->push(std::move(done));
    return;
  }
  auto session = self_->spawn<caf::monitored>(
      session_actor, setup_.router,
      SessionSetup{message.session, message.model, message.request, message.stream});
  ids_[session.address()] = message.session;
  sessions_[message.session] = std::move(session);
}

void FrontDeskState::closed(const caf::actor_addr& session) {
  const auto found = ids_.find(session);
  if (found == ids_.end()) return;
  sessions_.erase(found->second);
  ids_.erase(found);
}

schema::FrontDeskHandle::behavior_type FrontDeskState::make_behavior() {
  return {
      [this](const schema::OpenSession& message) { open(message); },
      [this](const schema::CancelSession& message) {
        const auto found = sessions_.find(message.session);
        if (found != sessions_.end()) self_->send(found->second, message);
      },
      [this](const schema::ResumeSession& message) {
        const auto found = sessions_.find(message.session);
        if (found != sessions_.end()) self_->send(found->second, message);
      },
      [this](const schema::CountSessions&) {
        return schema::SessionCount{static_cast<uint32_t>(sessions_.size())};
      },
  };
}

schema::FrontDeskHandle::behavior_type front_desk(
    schema::FrontDeskHandle::stateful_pointer<FrontDeskState> self, FrontDeskSetup setup) {
  self->state.start(self, std::move(setup));
  return self->state.make_behavior();
}

}  // namespace outrider::actors
