#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "actors/draft_duty.hpp"
#include "actors/engine_port.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

using ToDraft = std::variant<schema::DraftOpen, schema::DraftCommits, schema::DraftClose>;

/// What a feed wants said and done.
struct FeedOutbox {
  std::vector<schema::LeaseDraft> asks;  ///< Without reply_to.
  std::vector<schema::EndLease> ends;
  std::vector<std::pair<uint64_t, ToDraft>> to_drafts;  ///< By worker; without DraftOpen::target.
  std::vector<DraftedHint> hints;
  uint64_t unleased = 0;  ///< Hints that nobody asked for.
};

/// The target's side of drafting by models: which requests have a lease, what each draft has been
/// told of their texts, and whether drafts are wanted at all. What steps committed goes out in one
/// message to each draft; a draft that says nothing is told no more than a bound. Nothing waits for
/// it. Plain; owned by the target actor.
class DraftFeed {
 public:
  struct Options {
    uint64_t target = 0;
    std::string tokenizer;   ///< Fingerprint.
    uint32_t depth_max = 0;  ///< Hints that a step verifies of a choice; 0: nobody drafts.
    DraftDuty::Options duty;
    uint32_t sequences = UINT32_MAX;  ///< That the engine runs at once.
  };
  explicit DraftFeed(Options options) : options_(std::move(options)), duty_(options_.duty) {}

  /// The engine has got this request.
  void begin(RequestKey key, const GenerationRequest& request);
  /// It refused it.
  void forget(RequestKey key);
  /// Nobody reads it for now: it is not drafted for.
  void set_parked(RequestKey key, bool parked);
  /// What a step did.
  void commit(std::span<const model::ChoiceUpdate> updates, const StepReport& step);

  /// The router that leased is gone, or has forgotten: who leases now is asked, for all.
  void ask_again();

  void take(const schema::DraftsKnown& known);
  void take(const schema::DraftLease& lease);
  void take(const schema::DraftReady& ready);
  void take(const schema::DraftHints& hints);
  void take(const schema::DraftResync& resync);
  void take(const schema::DraftClose& close);
  /// This draft lives: it said something, if only of a request that is over.
  void heard(uint64_t worker) { unanswered_.erase(worker); }
  /// Silent drafts get one more message.
  void beat();

  FeedOutbox take_outbox() { return std::exchange(outbox_, {}); }
  bool on() const { return options_.depth_max > 0 && duty_.on(); }
  bool wants_none() const { return options_.depth_max == 0; }
  uint32_t open() const;  ///< Choices that a draft has been told of.
  bool has_leased(uint64_t worker) const;

 private:
  struct Text {
    std::vector<int32_t> output;
    uint32_t sent = 0;     ///< Tokens of prompt and output that the draft has been told.
    uint32_t depth = 0;    ///< What it was told to draft.
    bool decodes = false;  ///< A token has come: its prompt is computed.
    bool open = false;
    bool held = false;    ///< The draft may hold it, open or not: it is told of the end.
    bool ready = false;   ///< Hints have come since drafts are wanted.
    bool closed = false;  ///< The draft will not have it.
    bool finished = false;
    float accepted = 1;  ///< Hints that came true in a step, of late.
  };
  struct Request {
    schema::WireRequest wire;
    std::vector<int32_t> prompt;
    std::vector<Text> texts;  ///< By choice.
    uint32_t depth_max = 0;
    bool asked = false;     ///< The router that leases now.
    bool may_hold = false;  ///< A place, so that its end is to be told.
    bool parked = false;
    uint32_t generation = 0;
    uint64_t worker = 0;  ///< Its draft; 0: none.

    uint32_t length(const Text& text) const;
    void copy(const Text& text, uint32_t from, uint32_t count, std::vector<int32_t>& out) const;
  };
  using Requests = std::map<RequestKey, Request>;

  schema::DraftKey key_of(RequestKey key, const Request& request, uint32_t choice) const;
  /// The open text that the key speaks of; null if it is not, or not any more.
  std::pair<Request*, Text*> find(const schema::DraftKey& key);
  void commit(const model::ChoiceUpdate& update);
  void finish(Requests::iterator request);
  void close(RequestKey key, const Request& request, uint32_t choice);
  void give_back(RequestKey key, Request& request);
  void give_back_unused(RequestKey key, Request& request);
  void flush();
  void flush(RequestKey key, Request& request, bool wanted);
  bool may_open(const Text& text) const;
  void send(schema::DraftKey key, const Request& request, Text& text, uint32_t depth);
  schema::DraftCommits& message_for(const Request& request, size_t tokens);
  uint32_t depth_of(const Request& request, const Text& text) const;
  bool is_ready() const;
  bool is_running(const Request& request) const;

  Options options_;
  DraftDuty duty_;
  Requests requests_;
  std::map<uint64_t, uint32_t> unanswered_;  ///< Messages to each draft since it said something.
  Duration step_{0};                         ///< Of late.
  bool was_on_ = false;
  FeedOutbox outbox_;
};

}  // namespace outrider::actors
