#pragma once

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "router/router_actor.hpp"
#include "router/workers.test.hpp"

namespace outrider::router {

struct RouterConfig : caf::actor_system_config {
  RouterConfig() {
    schema::add_messages(*this);
    set("scheduler.policy", caf::atom("testing"));
  }
};

using Replies = std::vector<schema::PlaceReply>;

/// Fake sessions and workers around a real router, in virtual time.
class RouterWorld : public ::testing::Test {
 protected:
  RouterWorld() { router_ = own(system_.spawn(router_actor, log_)); }
  ~RouterWorld() override {
    for (const caf::strong_actor_ptr& actor : actors_) {
      caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
    }
    run();
  }

  void run() { scheduler_.run(); }
  void advance(uint32_t ms) {
    scheduler_.advance_time(std::chrono::milliseconds(ms));
    run();
  }
  template <class Handle>
  Handle own(Handle handle) {
    actors_.push_back(caf::actor_cast<caf::strong_actor_ptr>(handle));
    return handle;
  }
  template <class Handle>
  void kill(const Handle& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    run();
  }

  schema::TargetHandle worker(uint64_t id) {
    const auto asked = asked_;
    const auto leases = leases_;
    const auto known = known_;
    const auto refused = refused_;
    auto handle =
        own(system_.spawn([asked, leases, known, refused]() -> schema::TargetHandle::behavior_type {
          return {[](const schema::SubmitBegin&) {},
                  [](const schema::PromptPart&) {},
                  [](const schema::SubmitEnd&) {},
                  [](const schema::CancelRequest&) {},
                  [](const schema::SetParked&) {},
                  [](const schema::Resend&) {},
                  [](const schema::DoneAck&) {},
                  [asked](const schema::AnnounceAgain&) { ++*asked; },
                  [leases](const schema::DraftLease& lease) { leases->push_back(lease); },
                  [](const schema::DraftReady&) {},
                  [](const schema::DraftHints&) {},
                  [](const schema::DraftResync&) {},
                  [](const schema::DraftClose&) {},
                  [known](const schema::DraftsKnown& message) { known->push_back(message.drafts); },
                  [refused](const schema::WorkerRefused& why) { refused->push_back(why); },
                  [](const schema::LineWanted&) {}};
        }));
    announce(handle, announce_of(id));
    return handle;
  }
  static uint64_t incarnation_of_draft(uint64_t id) { return 100 + id; }
  schema::DraftHandle draft(uint64_t id, const std::string& tokenizer = "tokens") {
    const auto refused = refused_;
    auto handle = own(system_.spawn([refused]() -> schema::DraftHandle::behavior_type {
      return {[](const schema::DraftOpen&) {}, [](const schema::DraftCommits&) {},
              [](const schema::DraftClose&) {}, [](const schema::AnnounceAgain&) {},
              [refused](const schema::WorkerRefused& why) { refused->push_back(why); }};
    }));
    schema::Announce message = announce_of(id, incarnation_of_draft(id));
    message.role = schema::Role::draft;
    message.draft = handle;
    message.tokenizer = tokenizer;
    caf::anon_send(router_, message);
    run();
    return handle;
  }
  void ask_draft(const schema::TargetHandle& target, uint64_t session) {
    schema::LeaseDraft ask;
    ask.request = {session, 1};
    ask.target = 1;
    ask.reply_to = target;
    ask.tokenizer = "tokens";
    ask.runs = 1;
    caf::anon_send(router_, ask);
    run();
  }
  void announce(const schema::TargetHandle& handle, schema::Announce message) {
    message.target = handle;
    caf::anon_send(router_, message);
    run();
  }
  void serve(std::vector<schema::Served> models) {
    caf::anon_send(router_, schema::ServesModel{std::move(models)});
    run();
  }
  void heartbeat(const schema::TargetHandle& from, const schema::Load& load) {
    const auto sender = caf::actor_cast<caf::strong_actor_ptr>(from);
    const auto router = caf::actor_cast<caf::strong_actor_ptr>(router_);
    router->enqueue(sender, caf::make_message_id(), caf::make_message(load), nullptr);
    run();
  }
  schema::SessionHandle session() {
    const auto replies = replies_;
    return own(system_.spawn([replies]() -> schema::SessionHandle::behavior_type {
      return {[replies](const schema::PlaceReply& reply) { replies->push_back(reply); },
              [](const schema::Accepted&) {},
              [](const schema::Rejected&) {},
              [](const schema::Leaving&) {},
              [](const schema::Tokens&) {},
              [](const schema::Done&) {},
              [](const schema::CancelSession&) {},
              [](const schema::ResumeSession&) {}};
    }));
  }
  schema::SessionHandle ask(schema::PlaceRequest request) {
    auto from = session();
    request.reply_to = from;
    caf::anon_send(router_, request);
    run();
    return from;
  }
  schema::WorkerList listed() {
    schema::WorkerList listed;
    caf::scoped_actor self(system_);
    self->send(router_, schema::ListWorkers{});
    run();
    self->receive([&](const schema::WorkerList& list) { listed = list; });
    return listed;
  }
  std::vector<schema::WorkerInfo> workers() { return listed().workers; }

  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> log_ = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines_));
  RouterConfig config_;
  caf::actor_system system_{config_};
  caf::scheduler::test_coordinator& scheduler_ =
      dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  std::shared_ptr<Replies> replies_ = std::make_shared<Replies>();
  std::shared_ptr<uint32_t> asked_ = std::make_shared<uint32_t>(0);
  std::shared_ptr<std::vector<uint32_t>> known_ = std::make_shared<std::vector<uint32_t>>();
  std::shared_ptr<std::vector<schema::DraftLease>> leases_ =
      std::make_shared<std::vector<schema::DraftLease>>();
  std::shared_ptr<std::vector<schema::WorkerRefused>> refused_ =
      std::make_shared<std::vector<schema::WorkerRefused>>();
  std::vector<caf::strong_actor_ptr> actors_;  ///< Scripted ones too: without a reference they end.
  RouterActor router_;
};

}  // namespace outrider::router
