#pragma once

#include <algorithm>
#include <caf/actor_addr.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/continuation.hpp"
#include "actors/terminal.hpp"
#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/request.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

using ToTarget =
    std::variant<schema::SubmitBegin, schema::PromptPart, schema::SubmitEnd, schema::CancelRequest,
                 schema::SetParked, schema::Resend, schema::DoneAck>;

/// What a session does to the world; all calls return at once.
class SessionPorts {
 public:
  virtual ~SessionPorts() = default;
  virtual void place(schema::PlaceRequest request) = 0;
  virtual void tell(const schema::TargetHandle& target, ToTarget message) = 0;
  virtual void watch(const schema::TargetHandle& target) = 0;  ///< on_down() when it is lost.
};

struct SessionSetup {
  uint64_t session = 0;
  std::string model;
  std::shared_ptr<const GenerationRequest> request;
  std::shared_ptr<schema::ClientStream> stream;
};

/// One request from opening to its single terminal event. Events in, effects through SessionPorts;
/// time is an argument. Owned by one session actor, used by one thread at a time.
///
/// The request is served by one attempt, or after a loss by one for each unfinished choice. Each
/// attempt has a generation of its own and walks through these phases:
///
///                 placed                Accepted
///     placing ------------> submitted ------------> streaming ----> gone, with its last choice
///      ^   |                    |                       |
///      |   | no reply,          | Rejected(unavailable or overloaded), DOWN, silent, Leaving
///   due|   | unavailable        v                       v
///      |   +--> waiting <--- new attempts, new generations, committed tokens
///      +-----------+
///
/// An attempt whose target leaves goes on there until targets have accepted those that replace it.
///
/// It ends when all choices are finished (done), on a refusal that another try does not change
/// (rejected, or failed once something was accepted), when too many targets fail it without
/// progress or too many placements find none (likewise), when the client cancels or goes, or at the
/// deadline (cancelled).
class SessionMachine {
 public:
  SessionMachine(SessionSetup setup, SessionPorts& ports, TimePoint now);

  void on(const schema::PlaceReply& reply, TimePoint now);
  void on(const schema::Accepted& message, TimePoint now);
  void on(const schema::Rejected& message, TimePoint now);
  void on(const schema::Leaving& message, TimePoint now);
  void on(const schema::Tokens& message, TimePoint now);
  void on(const schema::Done& message, TimePoint now);
  void on_down(const caf::actor_addr& target, TimePoint now);
  void on_cancel();
  void on_resume(TimePoint now);
  void on_time(TimePoint now);

  /// When on_time() has something to do; none once ended.
  std::optional<TimePoint> next_due() const;
  bool ended() const { return ended_; }

 private:
  /// After which a router is asked again, and a target probed.
  static constexpr Duration k_answer_timeout =
      std::chrono::milliseconds(limits::control_timeout_ms);

  enum class Phase : uint8_t { placing, waiting, submitted, streaming };

  struct Attempt {
    AttemptChoices choices;
    Phase phase = Phase::waiting;
    TimePoint due{0};
    uint32_t losses = 0;          ///< Targets that failed it since the last progress.
    uint32_t unplaced = 0;        ///< Placements that found none for it.
    TimePoint unplaced_since{0};  ///< The first of these.
    uint32_t silent = 0;          ///< Probes without an answer.
    bool gap_asked = false;
    bool leaves = false;                  ///< Others go on for it as soon as targets accept them.
    bool delivered = false;               ///< Something came from this target.
    std::optional<TimePoint> full_since;  ///< All queues were full since then.
    std::vector<uint64_t> avoid;          ///< Workers that failed it since the last progress.
    schema::TargetHandle target;
    uint64_t worker = 0;
    uint32_t replaces = 0;           ///< The lost generation that it goes on for; 0: none.
    schema::TargetHandle kv_target;  ///< Who leaves and has its keys and values; null: nobody.
    uint64_t kv_worker = 0;          ///< The same.

    /// Whoever leaves after it has let it in has not failed it.
    uint32_t losses_with_it() const {
      return leaves && phase == Phase::streaming ? losses : losses + 1;
    }
    bool at_target() const { return phase == Phase::submitted || phase == Phase::streaming; }
    bool computes(uint32_t choice) const {
      return std::find(choices.begin(), choices.end(), choice) != choices.end();
    }
  };
  using Attempts = std::map<uint32_t, Attempt>;  ///< By generation.

  RequestKey key(uint32_t generation) const { return {session_, generation}; }
  Attempt* find(RequestKey key, bool at_target);
  void heard(Attempt& attempt);
  static schema::Refusal unavailable(const char* why);
  /// None once there is nothing left to compute: then only a slow client is waited for.
  std::optional<TimePoint> deadline() const {
    return progress_.finished() ? std::nullopt : deadline_;
  }

  // session_placing.cpp
  void begin(Attempt begun, bool at_once, TimePoint now);
  void ask(uint32_t generation, Attempt& attempt, TimePoint now);
  void try_again(uint32_t generation, const schema::Refusal& why, TimePoint now);
  void wait_for_room(Attempt& attempt, const schema::Refusal& why, TimePoint now);
  bool nothing_delivered() const;
  /// No token came, and nobody else will send one: any worker will do, whatever its fingerprint.
  bool is_free(const Attempt& attempt) const;
  /// A target that leaves still computes some of it: there is nothing to give up for.
  bool target_goes_on(const Attempt& attempt) const;
  void submit(uint32_t generation, Attempt& attempt, TimePoint now);
  void move(uint32_t generation, const schema::Refusal& why, TimePoint now);
  /// Too many targets failed it: it may be why.
  void give_up(const schema::Refusal& why);
  void give_up_placing(const Attempt& attempt, const schema::Refusal& why, TimePoint now);
  void hand_over(uint32_t generation, TimePoint now);
  void replace(uint32_t generation, const Attempt& lost, Attempt common, bool at_once,
               TimePoint now);
  void split(Attempt& attempt, TimePoint now);
  void retire_leaving();
  void drop_finished();
  bool has_successor(uint32_t generation, uint32_t choice, Phase reached) const;
  bool is_taken_over(uint32_t generation, uint32_t choice) const;
  bool is_heard(uint32_t generation, uint32_t choice) const;
  void ask_leaving(const AttemptChoices& choices);
  Duration backoff(uint32_t tries) const;
  uint32_t deadline_left_ms(TimePoint now) const;

  // session_machine.cpp
  void probe(uint32_t generation, Attempt& attempt, TimePoint now);
  void ask_about_gap(uint32_t generation, Attempt& attempt);
  void ask_missing(uint32_t generation, Attempt& attempt);
  bool take(uint32_t generation, Attempt& attempt, const schema::Tokens& message, TimePoint now);
  bool lacks_prompt(const schema::Tokens& message) const;
  bool merge(const schema::Tokens& message, schema::StreamTokens& out);
  void deliver(schema::StreamTokens event);
  void maybe_done();
  void refuse(const schema::Refusal& refusal);
  void end(schema::StreamDone done);

  const uint64_t session_;
  const std::string model_;
  const std::shared_ptr<const GenerationRequest> request_;
  Terminal terminal_;
  SessionPorts& ports_;
  std::optional<TimePoint> deadline_;
  SessionProgress progress_;
  Attempts attempts_;
  uint32_t last_generation_ = 0;
  std::string fingerprint_;  ///< Of the first target that delivered; all others must match.
  RequestTimings timings_;
  bool accepted_ = false;
  bool blocked_ = false;  ///< The client's stream is full: tokens are dropped and asked for later.
  bool ended_ = false;
};

}  // namespace outrider::actors
