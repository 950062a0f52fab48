#pragma once

#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

/// What each actor can be told. `actors/` and `router/` meet here and nowhere else: a scripted
/// session tests a target, a fake worker tests the router. A handle means the same in this process
/// and across nodes. The messages, their order and what a lost one means: messages.hpp.
namespace outrider::schema {

struct Accepted;
struct Announce;
struct AnnounceAgain;
struct CancelRequest;
struct CancelSession;
struct CountSessions;
struct Done;
struct DoneAck;
struct DraftClose;
struct DraftCommits;
struct DraftHints;
struct DraftLease;
struct DraftOpen;
struct DraftReady;
struct DraftResync;
struct DraftsKnown;
struct EndLease;
struct LeaseDraft;
struct Leaving;
struct LineWanted;
struct ListWorkers;
struct Load;
struct OpenSession;
struct PlaceReply;
struct PlaceRequest;
struct PromptPart;
struct Rejected;
struct Resend;
struct ResumeSession;
struct RouterFound;
struct ServesModel;
struct SessionCount;
struct SetParked;
struct SubmitBegin;
struct SubmitEnd;
struct Tokens;
struct WorkerList;
struct WorkerRefused;

/// One request: prompt, committed tokens, terminal state. Lives in its gateway's process.
using SessionHandle =
    caf::typed_actor<caf::reacts_to<PlaceReply>, caf::reacts_to<Accepted>, caf::reacts_to<Rejected>,
                     caf::reacts_to<Leaving>, caf::reacts_to<Tokens>, caf::reacts_to<Done>,
                     caf::reacts_to<CancelSession>, caf::reacts_to<ResumeSession>>;

/// One engine.
using TargetHandle = caf::typed_actor<
    caf::reacts_to<SubmitBegin>, caf::reacts_to<PromptPart>, caf::reacts_to<SubmitEnd>,
    caf::reacts_to<CancelRequest>, caf::reacts_to<SetParked>, caf::reacts_to<Resend>,
    caf::reacts_to<DoneAck>, caf::reacts_to<AnnounceAgain>, caf::reacts_to<DraftLease>,
    caf::reacts_to<DraftReady>, caf::reacts_to<DraftHints>, caf::reacts_to<DraftResync>,
    caf::reacts_to<DraftClose>, caf::reacts_to<DraftsKnown>, caf::reacts_to<WorkerRefused>,
    caf::reacts_to<LineWanted>>;

/// A model that drafts for targets.
using DraftHandle = caf::typed_actor<caf::reacts_to<DraftOpen>, caf::reacts_to<DraftCommits>,
                                     caf::reacts_to<DraftClose>, caf::reacts_to<AnnounceAgain>,
                                     caf::reacts_to<WorkerRefused>>;

/// What any worker can be told.
using WorkerHandle = caf::typed_actor<caf::reacts_to<AnnounceAgain>>;

/// Soft state only: who is alive, how loaded, which request was charged to whom,
/// and which draft is leased to it.
using RouterHandle =
    caf::typed_actor<caf::reacts_to<PlaceRequest>, caf::reacts_to<Announce>, caf::reacts_to<Load>,
                     caf::reacts_to<LeaseDraft>, caf::reacts_to<EndLease>,
                     caf::reacts_to<ServesModel>, caf::replies_to<ListWorkers>::with<WorkerList>>;

/// Spawns a session per request. Only its own process talks to it.
using FrontDeskHandle = caf::typed_actor<caf::reacts_to<OpenSession>, caf::reacts_to<CancelSession>,
                                         caf::reacts_to<ResumeSession>,
                                         caf::replies_to<CountSessions>::with<SessionCount>>;

}  // namespace outrider::schema
