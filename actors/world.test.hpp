#pragma once

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <memory>
#include <sstream>
#include <variant>
#include <vector>

#include "actors/front_desk.hpp"
#include "actors/session_actor.hpp"
#include "actors/system_config.hpp"
#include "actors/target_actor.hpp"

/// A single-threaded world with virtual time: actors run when the test says so.
namespace outrider::actors {

struct TestConfig : SystemConfig {
  TestConfig() { set("scheduler.policy", caf::atom("testing")); }
};

/// What a client saw; `level` is what its stream answers.
class Collector final : public schema::ClientStream {
 public:
  Level push(schema::StreamEvent event) override {
    EXPECT_TRUE(dones.empty()) << "an event after the terminal one";
    if (auto* done = std::get_if<schema::StreamDone>(&event)) {
      dones.push_back(std::move(*done));
    } else {
      take(std::get<schema::StreamTokens>(std::move(event)));
    }
    return level;
  }

  bool done() const { return dones.size() == 1; }
  schema::StreamDone::Outcome outcome() const { return dones.at(0).outcome; }
  ErrorCode error() const { return dones.at(0).error.value().code; }
  std::vector<int32_t> ids(uint32_t choice = 0) const {
    const auto found = choices.find(choice);
    return found == choices.end() ? std::vector<int32_t>{} : found->second;
  }

  Level level = Level::flowing;
  std::map<uint32_t, std::vector<int32_t>> choices;
  std::map<uint32_t, Finish> finishes;
  std::vector<TokenOut> prompt_tokens;
  std::vector<schema::StreamDone> dones;
  uint32_t events = 0;

 private:
  void take(schema::StreamTokens tokens) {
    ++events;
    EXPECT_EQ(finishes.count(tokens.choice), 0u) << "tokens after the choice's finish";
    std::vector<int32_t>& ids = choices[tokens.choice];
    EXPECT_EQ(tokens.first_index, ids.size()) << "a gap or a repeat in the stream";
    for (const TokenOut& token : tokens.tokens) ids.push_back(token.id);
    for (TokenOut& token : tokens.prompt_tokens) prompt_tokens.push_back(std::move(token));
    if (tokens.finish) finishes[tokens.choice] = *tokens.finish;
  }
};

/// Everything that a scripted target was told, in order.
struct TargetLog {
  std::vector<ToTarget> messages;

  template <class Message>
  std::vector<Message> all() const {
    std::vector<Message> found;
    for (const ToTarget& message : messages) {
      if (const auto* match = std::get_if<Message>(&message)) found.push_back(*match);
    }
    return found;
  }
  template <class Message>
  Message last() const {
    const auto found = all<Message>();
    EXPECT_FALSE(found.empty());
    return found.empty() ? Message{} : found.back();
  }
};

inline schema::TargetHandle::behavior_type scripted_target(std::shared_ptr<TargetLog> log) {
  const auto note = [log](auto message) { log->messages.emplace_back(std::move(message)); };
  return {[note](const schema::SubmitBegin& m) { note(m); },
          [note](const schema::PromptPart& m) { note(m); },
          [note](const schema::SubmitEnd& m) { note(m); },
          [note](const schema::CancelRequest& m) { note(m); },
          [note](const schema::SetParked& m) { note(m); },
          [note](const schema::Resend& m) { note(m); },
          [note](const schema::DoneAck& m) { note(m); },
          [](const schema::AnnounceAgain&) {},
          [](const schema::DraftLease&) {},
          [](const schema::DraftReady&) {},
          [](const schema::DraftHints&) {},
          [](const schema::DraftResync&) {},
          [](const schema::DraftClose&) {},
          [](const schema::DraftsKnown&) {},
          [](const schema::WorkerRefused&) {},
          [](const schema::LineWanted&) {}};
}

struct RouterLog {
  std::vector<schema::PlaceRequest> places;
  std::vector<schema::Announce> announces;
  std::vector<schema::Load> loads;
  std::vector<schema::LeaseDraft> asks;
  std::vector<schema::EndLease> ends;
  std::vector<schema::ServesModel> served;
};

inline schema::RouterHandle::behavior_type scripted_router(std::shared_ptr<RouterLog> log) {
  return {[log](const schema::PlaceRequest& m) { log->places.push_back(m); },
          [log](const schema::Announce& m) { log->announces.push_back(m); },
          [log](const schema::Load& m) { log->loads.push_back(m); },
          [log](const schema::LeaseDraft& m) { log->asks.push_back(m); },
          [log](const schema::EndLease& m) { log->ends.push_back(m); },
          [log](const schema::ServesModel& m) { log->served.push_back(m); },
          [](const schema::ListWorkers&) { return schema::WorkerList{}; }};
}

class World : public ::testing::Test {
 protected:
  using Scheduler = caf::scheduler::test_coordinator;
  using Outcome = schema::StreamDone::Outcome;
  using Level = schema::ClientStream::Level;

  World() { router_ = own(system_.spawn(scripted_router, router_log_)); }
  ~World() override {
    for (const caf::strong_actor_ptr& actor : actors_) {
      caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
    }
    router_ = nullptr;
    run();
  }

  void run() { scheduler_.run(); }
  void advance(uint32_t ms) {
    run();
    scheduler_.advance_time(std::chrono::milliseconds(ms));
    run();
  }
  template <class Handle>
  Handle own(Handle handle) {
    actors_.push_back(caf::actor_cast<caf::strong_actor_ptr>(handle));
    return handle;
  }
  template <class Handle, class Message>
  void tell(const Handle& actor, Message message) {
    caf::anon_send(actor, std::move(message));
    run();
  }
  template <class Handle>
  void kill(const Handle& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    run();
  }

  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> log_ = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines_));
  TestConfig config_;
  caf::actor_system system_{config_};
  Scheduler& scheduler_ = dynamic_cast<Scheduler&>(system_.scheduler());
  std::shared_ptr<RouterLog> router_log_ = std::make_shared<RouterLog>();
  schema::RouterHandle router_;
  std::vector<caf::strong_actor_ptr> actors_;  ///< Scripted ones too: without a reference they end.
};

}  // namespace outrider::actors
