#pragma once

#include <string>

#include "actors/world.test.hpp"
#include "base/limits.hpp"

namespace outrider::actors {

/// One session between a scripted router and scripted targets.
class SessionWorld : public World {
 protected:
  struct Twin {
    std::shared_ptr<TargetLog> log = std::make_shared<TargetLog>();
    schema::TargetHandle handle;
    uint64_t worker = 0;
  };

  SessionWorld() {
    request_.prompt = {1, 2, 3};
    request_.stop.max_tokens = 8;
    request_.sampling.seed = 100;
  }

  Twin twin(uint64_t worker) {
    Twin made;
    made.handle = own(system_.spawn(scripted_target, made.log));
    made.worker = worker;
    return made;
  }

  void open() {
    session_ = own(system_.spawn(
        session_actor, router_,
        SessionSetup{7, "tiny", std::make_shared<GenerationRequest>(request_), client_}));
    run();
  }

  const schema::PlaceRequest& placed() const { return router_log_->places.back(); }
  RequestKey key() const { return placed().key; }

  void reply(const Twin& target, std::string fingerprint = "fp") {
    schema::PlaceReply reply{key(), {}, target.handle, target.worker, std::move(fingerprint)};
    tell(session_, std::move(reply));
  }
  void refuse(ErrorCode code, uint32_t retry_after_ms = 0) {
    schema::PlaceReply reply;
    reply.key = key();
    reply.refusal = schema::Refusal::of(fail(code, "told to"), retry_after_ms);
    tell(session_, std::move(reply));
  }
  void reject(RequestKey key, ErrorCode code) {
    tell(session_, schema::Rejected{key, schema::Refusal::of(fail(code, "told to"))});
  }
  void accept(RequestKey key) { tell(session_, schema::Accepted{key}); }
  /// Opens, places at `target` and is accepted there.
  void start_at(const Twin& target) {
    open();
    reply(target);
    accept(key());
  }

  /// Lets every pending pause pass.
  void wait_backoff() { advance(limits::placement_backoff_max_ms); }

  static schema::Tokens tokens(RequestKey key, uint32_t first, std::vector<int32_t> ids,
                               uint32_t choice = 0) {
    schema::Tokens message;
    message.key = key;
    message.choice = choice;
    message.first_index = first;
    message.tokens.ids = std::move(ids);
    return message;
  }
  static schema::Tokens finishing(schema::Tokens message,
                                  FinishReason reason = FinishReason::length) {
    message.finish = schema::WireFinish::of({reason, -1, -1});
    return message;
  }

  GenerationRequest request_;
  std::shared_ptr<Collector> client_ = std::make_shared<Collector>();
  SessionActor session_;
};

}  // namespace outrider::actors
