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
                 x.max_tokens, x.choices, x.tenant, x.avoid, x.replaces)
OUTRIDER_INSPECT(PlaceReply, x.key, x.refusal, x.target, x.worker, x.fingerprint)
OUTRIDER_INSPECT(SubmitBegin, x.key, x.session, x.request, x.prompt_tokens, x.committed_tokens,
                 x.parts)
OUTRIDER_INSPECT(PromptPart, x.key, x.part, x.ids)
OUTRIDER_INSPECT(SubmitEnd, x.key)
OUTRIDER_INSPECT(CancelRequest, x.key)
OUTRIDER_INSPECT(SetParked, x.key, x.parked)
OUTRIDER_INSPECT(Resend, x.key, x.choice, x.from_index, x.prompt_from_index)
OUTRIDER_INSPECT(DoneAck, x.key)
OUTRIDER_INSPECT(Accepted, x.key)
OUTRIDER_INSPECT(Rejected, x.key, x.refusal)
OUTRIDER_INSPECT(Tokens, x.key, x.choice, x.first_index, x.tokens, x.prompt_first_index,
                 x.prompt_tokens, x.finish)
OUTRIDER_INSPECT(Done, x.key, x.error, x.timings)
OUTRIDER_INSPECT(Announce, x.worker, x.incarnation, x.role, x.name, x.target, x.model,
                 x.fingerprint, x.context_tokens, x.sequences, x.waiting, x.blocks_total,
                 x.block_tokens, x.prefill_row_ns, x.attention_pair_ps, x.step_rows,
                 x.step_contexts, x.step_ns)
OUTRIDER_INSPECT(Load, x.worker, x.incarnation, x.sequence, x.running, x.waiting, x.parked,
                 x.blocks_free, x.blocks_total, x.queued_rows, x.rows_per_s)
OUTRIDER_INSPECT(AnnounceAgain, x.worker)
OUTRIDER_INSPECT(ListWorkers)
OUTRIDER_INSPECT(WorkerInfo, x.announce, x.load, x.silent_ms, x.charged_choices)
OUTRIDER_INSPECT(WorkerList, x.workers)

#undef OUTRIDER_INSPECT

}  // namespace outrider::schema
