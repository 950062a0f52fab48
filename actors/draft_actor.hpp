#pragma once

#include <spdlog/logger.h>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <map>
#include <memory>

#include "actors/draft_loop.hpp"
#include "actors/known_routers.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

/// From the draft engine's thread to its actor; never leaves the process.
struct DraftReport {
  std::shared_ptr<DraftReplies> replies;
};

using DraftActor =
    schema::DraftHandle::extend<caf::reacts_to<DraftReport>, caf::reacts_to<caf::tick_atom>,
                                caf::reacts_to<schema::RouterFound>>;

struct DraftSetup {
  schema::Announce announce;    ///< `draft` is filled in by the actor.
  schema::RouterHandle router;  ///< May be null: of routers elsewhere it is told by RouterFound.
  size_t routers = 1;           ///< That it is to find; it ends when all of them refuse it.
  DraftFactory engine;
  std::shared_ptr<spdlog::logger> log;
};

/// The mailbox of a draft engine: what targets say goes to its thread, what that answers goes back,
/// in one message of a kind to each target. When it stops, targets decode plainly; its engine
/// stops, or drafts no more where a target actor answers requests by it.
class DraftState {
 public:
  DraftState() = default;
  ~DraftState();

  void start(DraftActor::pointer self, DraftSetup setup);
  DraftActor::behavior_type make_behavior();

 private:
  void join(const schema::RouterHandle& router, const std::string& gate);
  void announce();
  void open(const schema::DraftOpen& message);
  void forget_oldest_target();
  /// A target or a router.
  void lost(const caf::actor_addr& actor);
  void report(DraftReplies& replies);
  void refused(const schema::Refusal& refusal);
  void heartbeat();
  /// To the target that the key names; one that is not known any more gets nothing.
  template <class Message>
  void send(const schema::DraftKey& key, Message message);

  DraftActor::pointer self_ = nullptr;
  schema::Announce announce_;
  KnownRouters routers_{1};
  std::shared_ptr<spdlog::logger> log_;
  struct Target {
    schema::TargetHandle handle;  ///< Monitored.
    uint64_t opened = 0;          ///< opens_ when it last opened a text
  };
  std::map<uint64_t, Target> targets_;  ///< limits::draft_targets_max at most
  uint64_t opens_ = 0;
  bool has_told_error_ = false;  ///< Of each text it would be told again.
  uint64_t heartbeats_ = 0;
  std::shared_ptr<DraftPort> engine_;  ///< Last: it stops before the rest goes.
};

DraftActor::behavior_type draft_actor(DraftActor::stateful_pointer<DraftState> self,
                                      DraftSetup setup);

}  // namespace outrider::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(outrider::actors::DraftReport)
