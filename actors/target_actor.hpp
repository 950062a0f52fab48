#pragma once

#include <spdlog/logger.h>

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "actors/block_giver.hpp"
#include "actors/draft_feed.hpp"
#include "actors/engine_port.hpp"
#include "actors/known_routers.hpp"
#include "actors/peer_tier.hpp"
#include "actors/prompt_assembly.hpp"
#include "actors/request_record.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

/// From the engine's thread to its target actor; never leaves the process.
struct EngineReport {
  std::shared_ptr<EngineEvents> events;
};

/// To a target actor of this process: it gives away what it has, and ends when that is done, within
/// TargetSetup::leaves_within: by exit_reason::user_shutdown if nothing was left.
struct LeaveNow {};

using TargetActor =
    schema::TargetHandle::extend<caf::reacts_to<EngineReport>, caf::reacts_to<caf::tick_atom>,
                                 caf::reacts_to<schema::RouterFound>, caf::reacts_to<LeaveNow>>;

struct TargetSetup {
  schema::Announce announce;    ///< `target` is filled in by the actor.
  schema::RouterHandle router;  ///< May be null: of routers elsewhere it is told by RouterFound.
  size_t routers = 1;           ///< That it is to find; it ends when all of them refuse it.
  EngineFactory engine;
  DraftFeed::Options drafts;  ///< By models. Without a depth there are none.
  bool is_a_draft = false;    ///< Which answers for its own model: nobody expects drafts for it.
  PeerLines lines;            ///< Without a dial there are none.
  std::shared_ptr<PeerTier>
      peers;  ///< Below the engine's pool; null: it takes no blocks of others.
  /// What has not gone on elsewhere by then ends where it is.
  Duration leaves_within = std::chrono::milliseconds(limits::drain_timeout_ms);
  /// A step that takes longer has come to a halt; 0: none has.
  Duration hangs_after{0};
  std::shared_ptr<spdlog::logger> log;
};

/// The mailbox of one engine: checks what comes in, puts it into the engine's inbox, remembers the
/// output of each request until its session has it, tells the router how loaded it is, and drafts
/// what was committed. It decides nothing and computes nothing. When it stops, its engine stops.
class TargetState {
 public:
  TargetState() = default;

  void start(TargetActor::pointer self, TargetSetup setup);
  TargetActor::behavior_type make_behavior();

 private:
  using Keys = std::set<RequestKey>;

  void join(const schema::RouterHandle& router, const std::string& gate);
  void announce();
  void forgotten();
  void refused(const schema::Refusal& refusal);
  void begin(const schema::SubmitBegin& message);
  Result<void> admit(const schema::SubmitBegin& message) const;
  void part(const schema::PromptPart& message);
  void submit(RequestKey key);
  void cancel(RequestKey key);
  void resend(const schema::Resend& message);
  /// A session or a router.
  void lost(const caf::actor_addr& actor);
  void report(const EngineEvents& events);
  void update(const model::ChoiceUpdate& update);
  void heartbeat();
  void send_load();
  /// Asks sessions to go on elsewhere; then looks whether all have, and quits.
  void leave();
  size_t open_requests() const;
  /// Whether the engine hangs: then sessions are told, and routers by send_load().
  void look_at_step();
  TimePoint now() const;
  void needs_no_peer(RequestKey key);
  void know_peer(const schema::SubmitBegin& begin, GenerationRequest& request);
  void give(const schema::LineWanted& wanted);
  /// A message of a draft or about one.
  template <class Message>
  void draft_said(const Message& message);
  template <class Message>
  void draft(const Message& message);
  void lease(const schema::DraftLease& lease);
  /// Once.
  void tell_of_idle_drafts(uint32_t drafts);
  void send_drafts();
  void ask_again_for_drafts();

  /// Each key belongs to one session, which is monitored while it has any.
  void adopt(RequestKey key, const schema::SessionHandle& session);
  void drop(RequestKey key);
  void reject(const schema::SessionHandle& session, RequestKey key, const Error& error);

  TargetActor::pointer self_ = nullptr;
  schema::Announce announce_;
  KnownRouters routers_{1};
  std::shared_ptr<spdlog::logger> log_;
  std::map<RequestKey, PromptAssembly> assemblies_;
  std::map<RequestKey, RequestRecord> records_;
  std::map<RequestKey, schema::SessionHandle> owners_;
  std::map<caf::actor_addr, Keys> sessions_;
  Keys cancelled_;                   ///< Records that go as soon as the engine is through.
  std::deque<RequestKey> finished_;  ///< Oldest first; may name records already dropped.
  uint64_t heartbeats_ = 0;
  uint32_t expected_output_ = 128;  ///< Moving mean of output tokens; the start is a guess.
  DraftFeed drafts_{{}};
  std::map<uint64_t, schema::DraftHandle> draft_handles_;  ///< By worker.
  std::shared_ptr<PeerTier> peers_;
  std::map<RequestKey, uint64_t> handed_over_;  ///< Without a token yet; by whom.
  Duration leaves_within_{0};
  std::optional<TimePoint> leaves_by_;  ///< None: it stays.
  Duration hangs_after_{0};
  TimePoint long_step_{0};  ///< Began so: it was too long at the last look. 0: it was not.
  bool hangs_ = false;
  bool told_of_idle_drafts_ = false;
  TimePoint asked_{0};  ///< When it last gave away a request, or was asked for blocks.
  std::shared_ptr<EnginePort> engine_;
  std::unique_ptr<BlockGiver> giver_;  ///< Last, behind the engine: they stop before the rest goes.
};

TargetActor::behavior_type target_actor(TargetActor::stateful_pointer<TargetState> self,
                                        TargetSetup setup);

}  // namespace outrider::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(outrider::actors::EngineReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(outrider::actors::LeaveNow)
