#pragma once

#include "schema/messages.hpp"

/// How each message is read and written by CAF: its fields, in order. Included by messages.hpp.
namespace outrider::schema {

#define OUTRIDER_INSPECT(Type, ...)                                                 \
  template <class Inspector>                                                        \
  typename Inspector::result_type inspect(Inspector& f, [[maybe_unused]] Type& x) { \
    return f(caf::meta::type_name(#Type) __VA_OPT__(, ) __VA_ARGS__);               \
  }

OUTRIDER_INSPECT(CancelSession, x.session)
OUTRIDER_INSPECT(ResumeSession, x.session)
OUTRIDER_INSPECT(CountSessions)
OUTRIDER_INSPECT(SessionCount, x.open)
OUTRIDER_INSPECT(PlaceRequest, x.key, x.reply_to, x.model, x.fingerprint, x.prompt_tokens,
                 x.max_tokens, x.choices, x.tenant, x.avoid, x.replaces, x.goes_on)
OUTRIDER_INSPECT(PlaceReply, x.key, x.refusal, x.target, x.worker, x.fingerprint)
OUTRIDER_INSPECT(SubmitBegin, x.key, x.session, x.request, x.prompt_tokens, x.committed_tokens,
                 x.parts, x.kv_worker, x.kv_target)
OUTRIDER_INSPECT(PromptPart, x.key, x.part, x.ids)
OUTRIDER_INSPECT(SubmitEnd, x.key)
OUTRIDER_INSPECT(CancelRequest, x.key)
OUTRIDER_INSPECT(SetParked, x.key, x.parked)
OUTRIDER_INSPECT(Resend, x.key, x.choice, x.from_index, x.prompt_from_index)
OUTRIDER_INSPECT(DoneAck, x.key)
OUTRIDER_INSPECT(Accepted, x.key)
OUTRIDER_INSPECT(Leaving, x.key)
OUTRIDER_INSPECT(LineWanted, x.line, x.router)
OUTRIDER_INSPECT(Rejected, x.key, x.refusal)
OUTRIDER_INSPECT(Tokens, x.key, x.choice, x.first_index, x.tokens, x.prompt_first_index,
                 x.prompt_tokens, x.finish)
OUTRIDER_INSPECT(Done, x.key, x.error, x.timings)
OUTRIDER_INSPECT(Announce, x.worker, x.incarnation, x.role, x.name, x.target, x.draft, x.model,
                 x.fingerprint, x.traits, x.tokenizer, x.context_tokens, x.sequences, x.waiting,
                 x.blocks_total, x.block_tokens, x.prefill_row_ns, x.attention_pair_ps, x.step_rows,
                 x.step_contexts, x.step_ns)
OUTRIDER_INSPECT(Load, x.worker, x.incarnation, x.sequence, x.running, x.waiting, x.parked,
                 x.blocks_free, x.blocks_total, x.queued_rows, x.rows_per_s, x.draft_runs,
                 x.drafting, x.leaving, x.hangs, x.blocks_given, x.blocks_taken, x.hints)
OUTRIDER_INSPECT(AnnounceAgain, x.worker)
OUTRIDER_INSPECT(ListWorkers)
OUTRIDER_INSPECT(WorkerInfo, x.announce, x.load, x.silent_ms, x.charged_choices)
OUTRIDER_INSPECT(WorkerList, x.workers, x.targets, x.drafts, x.in_targets, x.joined, x.leaving,
                 x.left, x.gone, x.late, x.silent, x.hung, x.refused, x.placed_again, x.hints)
OUTRIDER_INSPECT(WorkerRefused, x.worker, x.refusal)
OUTRIDER_INSPECT(Served, x.model, x.fingerprint, x.traits)
OUTRIDER_INSPECT(ServesModel, x.models)
OUTRIDER_INSPECT(DraftKey, x.target, x.request, x.choice, x.generation)
OUTRIDER_INSPECT(LeaseDraft, x.request, x.target, x.reply_to, x.tokenizer, x.runs, x.generation)
OUTRIDER_INSPECT(DraftLease, x.request, x.generation, x.worker, x.draft)
OUTRIDER_INSPECT(DraftsKnown, x.drafts)
OUTRIDER_INSPECT(EndLease, x.request, x.target)
OUTRIDER_INSPECT(DraftOpen, x.key, x.target, x.tokenizer, x.request, x.prompt_tokens)
OUTRIDER_INSPECT(DraftCommit, x.key, x.base_length, x.tokens, x.depth, x.step_ns)
OUTRIDER_INSPECT(DraftCommits, x.commits)
OUTRIDER_INSPECT(DraftReady, x.key, x.base_length)
OUTRIDER_INSPECT(DraftBranch, x.parent, x.token, x.confidence, x.drawn_from)
OUTRIDER_INSPECT(DraftHint, x.key, x.base_length, x.base_hash, x.branches)
OUTRIDER_INSPECT(DraftHints, x.hints)
OUTRIDER_INSPECT(DraftResync, x.key, x.from_length)
OUTRIDER_INSPECT(DraftClose, x.key, x.reason)

#undef OUTRIDER_INSPECT

}  // namespace outrider::schema
