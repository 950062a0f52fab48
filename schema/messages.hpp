#pragma once

#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/optional.hpp>
#include <caf/type_id.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/answer_traits.hpp"
#include "base/hash.hpp"
#include "schema/client_stream.hpp"
#include "schema/draft_messages.hpp"
#include "schema/handles.hpp"
#include "schema/wire_types.hpp"

/// The mailbox: every message between actors.
///
/// Opening. The gateway sends OpenSession to its front desk, which spawns a session. CancelSession
/// and ResumeSession name it by id and are passed on. All three stay inside one process.
///
/// Placing. session -> router: PlaceRequest; router -> session: PlaceReply, with a target or a
/// refusal. One of them lost: the session asks again after limits::control_timeout_ms, at most
/// limits::placement_attempts_max times. A router that loses its memory has lost nothing that the
/// next heartbeat of each worker does not bring back.
///
/// Submitting. session -> target: SubmitBegin, PromptPart (numbered from 0), SubmitEnd; target ->
/// session: Accepted or Rejected. One of them lost: the target rejects what is incomplete as
/// `unavailable`; what it never heard of it rejects when the session probes (Resend).
///
/// Streaming. target -> session: Tokens until each choice has its finish, then Done; session ->
/// target: DoneAck. Indices are absolute: the session drops what it has and asks for a gap with
/// Resend, once until it is filled. A session that got nothing new for a while (new tokens or
/// Accepted) probes: SetParked again with what holds now, and unless it is parked Resend; the
/// target answers Accepted if the request lives, what is missing if something is, or Rejected if it
/// knows nothing. Until DoneAck (or a bound) the target keeps all tokens of the request. A lost
/// SetParked or Resend costs one pause until the probe, and tokens that are dropped and sent again
/// later. CancelRequest lost: the target monitors the session and cancels on its DOWN.
///
/// Moving. When the target is DOWN, silent or rejects as `unavailable`, the session goes back to
/// placing: each unfinished choice becomes a request of its own, with its committed tokens, under
/// a generation that was never used before, and names the one that it replaces. Messages of a
/// generation that the session has given up are dropped.
///
/// Leaving. A target that is asked to stop says so in its Load, at once, and is given nothing any
/// more; target -> session: Leaving, for each request that it holds. The session moves as above,
/// and tells the next target in SubmitBegin from whom keys and values can be had. That one names a
/// line (LineWanted, target -> target) on which it asks for them; what does not come is computed.
/// One of these lost: the request moves when the target is DOWN, or its blocks are computed.
///
/// Drafting: draft_messages.hpp.
///
/// Announcing. target -> router: Announce once, then Load each limits::heartbeat_interval_ms. A
/// router that gets a Load from a worker or an incarnation that it does not know answers
/// AnnounceAgain; by then its leases are forgotten, and a target asks it for them again. One that
/// fits nothing that is served here is told so (WorkerRefused) and ends; what is served is said by
/// the front desk (ServesModel). A worker is dropped on its DOWN or after
/// limits::heartbeat_timeout_ms of silence.
///
/// Rules: under limits::control_message_bytes_max each, no float or double, every type in the block
/// at the end of this file, ids only appended.
namespace outrider::schema {

// -- gateway -> front desk (local) ---------------------------------------------------------------

/// `session` is never used twice by one gateway, and is drawn so that two gateways do not collide.
struct OpenSession {
  uint64_t session = 0;
  std::string model;
  std::shared_ptr<const GenerationRequest> request;
  std::shared_ptr<ClientStream> stream;
};

/// The client is gone. Unknown sessions are ignored.
struct CancelSession {
  uint64_t session = 0;
};

/// The reader has drained a `full` stream.
struct ResumeSession {
  uint64_t session = 0;
};

struct CountSessions {};

struct SessionCount {
  uint32_t open = 0;
};

// -- front desk -> router ------------------------------------------------------------------------

/// A model by name, and what its answers are promised to be. Before a first target has set that: no
/// fingerprint, and the traits that are known.
struct Served {
  std::string model;
  std::string fingerprint = {};
  AnswerTraits traits = {};
};

/// All that the clients of a gateway are told that they get: targets that would answer otherwise
/// are refused.
struct ServesModel {
  std::vector<Served> models;
};

// -- session -> router -> session ----------------------------------------------------------------

struct PlaceRequest {
  RequestKey key;
  SessionHandle reply_to;
  std::string model;
  std::string fingerprint;     ///< Of the target that began it; empty: any.
  uint32_t prompt_tokens = 0;  ///< With committed tokens: all that must be prefilled.
  uint32_t max_tokens = 0;     ///< Still to come, per choice.
  uint32_t choices = 1;
  std::string tenant;
  std::vector<uint64_t> avoid;  ///< Workers that just failed this session.
  uint32_t replaces = 0;        ///< The generation that this one goes on for; 0: none.
  bool goes_on = false;         ///< Meanwhile its target does: only a free slot is worth the move.
};

struct PlaceReply {
  RequestKey key;
  Refusal refusal;  ///< If none, the rest is set.
  TargetHandle target;
  uint64_t worker = 0;
  std::string fingerprint;
};

// -- session -> target ---------------------------------------------------------------------------

struct SubmitBegin {
  RequestKey key;
  SessionHandle session;
  WireRequest request;
  uint32_t prompt_tokens = 0;
  uint32_t committed_tokens = 0;
  uint32_t parts = 0;
  uint64_t kv_worker = 0;  ///< Who is leaving and has keys and values of its tokens; 0: nobody.
  TargetHandle kv_target;  ///< The same; null: nobody.
};

/// The next tokens of prompt followed by committed; limits::prompt_part_tokens_max at most.
struct PromptPart {
  RequestKey key;
  uint32_t part = 0;
  std::vector<int32_t> ids;
};

struct SubmitEnd {
  RequestKey key;
};

struct CancelRequest {
  RequestKey key;
};

struct SetParked {
  RequestKey key;
  bool parked = false;
};

/// "I have everything below these indices." Sent for a gap, and to probe a silent target.
struct Resend {
  RequestKey key;
  uint32_t choice = 0;
  uint32_t from_index = 0;
  uint32_t prompt_from_index = 0;
};

/// Everything arrived; forget the request.
struct DoneAck {
  RequestKey key;
};

// -- target -> session ---------------------------------------------------------------------------

struct Accepted {
  RequestKey key;
};

struct Rejected {
  RequestKey key;
  Refusal refusal;
};

/// This worker is about to stop: the request is to go on elsewhere.
struct Leaving {
  RequestKey key;
};

struct Tokens {
  RequestKey key;
  uint32_t choice = 0;  ///< Of this attempt; the session knows which choice of the client it is.
  uint32_t first_index = 0;
  TokenBatch tokens;
  uint32_t prompt_first_index = 0;
  TokenBatch prompt_tokens;
  WireFinish finish;
};

/// All choices have their finish. `error` says more when one of them `failed`.
struct Done {
  RequestKey key;
  Refusal error;
  RequestTimings timings;
};

// -- target -> a target that is leaving ----------------------------------------------------------

/// Who sends it waits at one end of this line, at the gate of that router, and will ask for blocks.
struct LineWanted {
  std::vector<uint8_t> line;  ///< A LineToken.
  RouterHandle router;
};

// -- target -> router ----------------------------------------------------------------------------

enum class Role : uint8_t { target = 1, draft };
constexpr const char* to_string(Role role) {
  return role == Role::draft ? "draft" : "target";
}

/// What a worker is. `incarnation` is drawn at start: a restarted worker is a new one, even if the
/// operating system gives it the old process id. 53 bits, which is what most JSON readers keep.
struct Announce {
  uint64_t worker = 0;
  uint64_t incarnation = 0;
  Role role = Role::target;
  std::string name;     ///< For people.
  TargetHandle target;  ///< Of a target.
  DraftHandle draft;    ///< Of a draft.
  std::string model;
  std::string fingerprint;
  AnswerTraits traits;    ///< What it is the digest of.
  std::string tokenizer;  ///< Fingerprint: drafts serve targets of the same one.
  uint32_t context_tokens = 0;
  uint32_t sequences = 0;  ///< Running choices at most.
  uint32_t waiting = 0;    ///< Waiting choices at most.
  uint32_t blocks_total = 0;
  uint32_t block_tokens = 0;
  /// Measured at start: cost of one prefill row, and of one row attending to one earlier token.
  uint64_t prefill_row_ns = 0;
  uint64_t attention_pair_ps = 0;
  /// Likewise: what steps of few rows of one sequence take, by context and rows.
  std::vector<uint32_t> step_rows;      ///< ascending
  std::vector<uint32_t> step_contexts;  ///< tokens, ascending
  std::vector<uint64_t> step_ns;        ///< [step_contexts][step_rows]
};

/// A worker's state, each heartbeat. `running`, `waiting` and `parked` count choices; work is
/// counted in rows: tokens still to go through the model.
struct Load {
  uint64_t worker = 0;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;  ///< Counts up; an older one is dropped.
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint32_t parked = 0;
  uint32_t blocks_free = 0;
  uint32_t blocks_total = 0;
  uint64_t queued_rows = 0;   ///< Prefill and decode rows of all requests held.
  uint32_t rows_per_s = 0;    ///< Recent speed; 0: not measured yet.
  uint32_t draft_runs = 0;    ///< Choices that a draft drafts for; a target: for which one does.
  bool drafting = false;      ///< A target: drafts pay here now.
  bool leaving = false;       ///< A target: it takes nothing any more.
  bool hangs = false;         ///< A target: its engine is in a step that does not end.
  uint64_t blocks_given = 0;  ///< A target: KV blocks for others, since its start,
  uint64_t blocks_taken = 0;  ///< and from others.
  /// A target: since its start. None in a WorkerList, which has the sum of all.
  caf::optional<HintCounters> hints;

  bool takes_none() const { return leaving || hangs; }
};

/// router -> target.
struct AnnounceAgain {
  uint64_t worker = 0;
};

/// router -> a worker that it will not have: a draft whose tokenizer is none of its targets', a
/// target that would answer otherwise than those it has.
struct WorkerRefused {
  uint64_t worker = 0;
  Refusal refusal;
};

// -- whoever looks for a router -> worker (local) ----------------------------------------------

/// The worker is to announce itself there.
struct RouterFound {
  RouterHandle router;
  std::string gate = {};  ///< Where lines to that process are dialled: HOST:PORT.
};

// -- anyone -> router ----------------------------------------------------------------------------

struct ListWorkers {};

struct WorkerInfo {
  Announce announce;
  Load load;
  uint32_t silent_ms = 0;
  uint32_t charged_choices = 0;
};

/// In the order in which they joined, limits::listed_workers_max at most: the first draft
/// and targets that take requests before all others.
struct WorkerList {
  std::vector<WorkerInfo> workers;
  // Of all that are there, listed or not:
  uint32_t targets = 0;
  uint32_t drafts = 0;
  Load in_targets;  ///< Sums: running, waiting, parked, blocks_free, blocks_total.
  // Since the router's start, how many times a worker
  uint64_t joined = 0;        ///< became a member,
  uint64_t leaving = 0;       ///< was asked to stop, and takes nothing any more,
  uint64_t left = 0;          ///< ended in order,
  uint64_t gone = 0;          ///< ended otherwise, or its connection did,
  uint64_t late = 0;          ///< missed two heartbeats,
  uint64_t silent = 0;        ///< said nothing for too long,
  uint64_t hung = 0;          ///< said that its engine is in a step that does not end,
  uint64_t refused = 0;       ///< would not have fitted.
  uint64_t placed_again = 0;  ///< Sessions that were placed another time.
  HintCounters hints;         ///< Of all targets that it has known, each since that one's start.
};

/// Registers every type below with a CAF configuration.
void add_messages(caf::actor_system_config& config);

}  // namespace outrider::schema

#include "schema/messages_inspect.hpp"

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(outrider::schema::OpenSession)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(outrider::schema::RouterFound)

CAF_BEGIN_TYPE_ID_BLOCK(outrider, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(outrider, (outrider::schema::CancelSession))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::ResumeSession))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::CountSessions))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::SessionCount))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::PlaceRequest))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::PlaceReply))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::SubmitBegin))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::PromptPart))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::SubmitEnd))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::CancelRequest))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::SetParked))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Resend))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DoneAck))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Accepted))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Rejected))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Tokens))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Done))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Announce))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Load))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::AnnounceAgain))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::ListWorkers))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::WorkerInfo))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::WorkerList))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::WorkerRefused))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::LeaseDraft))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftLease))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::EndLease))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftOpen))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftCommit))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftCommits))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftReady))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftBranch))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftHint))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftHints))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftResync))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftClose))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::DraftsKnown))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::ServesModel))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::Leaving))
CAF_ADD_TYPE_ID(outrider, (outrider::schema::LineWanted))
CAF_END_TYPE_ID_BLOCK(outrider)
