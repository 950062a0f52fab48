#include "tools/draft_model.hpp"

#include <caf/send.hpp>
#include <utility>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/system.hpp"

namespace outrider::tools {
namespace {

/// The same engine as one that answers requests.
schema::Announce as_target(schema::Announce draft) {
  draft.worker = random_bits();
  draft.role = schema::Role::target;
  return draft;
}

}  // namespace

Result<PreparedDraft> prepare_draft(const DraftModel& draft, const Clock& clock) {
  auto engine = model::Engine::create(draft.model, draft.options, clock);
  if (!engine) return fail(engine.error().code, "draft: " + engine.error().message, "draft");
  PreparedDraft prepared;
  prepared.competes = draft.competes;
  prepared.rows = draft.rows;
  schema::Announce& announce = prepared.announce;
  announce.worker = random_bits();
  announce.incarnation = random_bits() >> 11;
  announce.role = schema::Role::draft;
  announce.name = "draft-0";
  announce.model = draft.name;
  announce.fingerprint = to_hex((*engine)->fingerprint());
  announce.traits = (*engine)->traits();
  announce.tokenizer = to_hex(draft.model->tokenizer->fingerprint());
  announce.context_tokens = (*engine)->context_tokens();
  announce.sequences = limits::draft_runs_max;
  announce.waiting = draft.options.waiting;
  announce.blocks_total = (*engine)->stats().blocks_total;
  announce.block_tokens = draft.options.block_tokens;
  prepared.model = draft.model;
  prepared.engine = std::move(*engine);
  return prepared;
}

RunningDraft::RunningDraft(caf::actor_system& system, const schema::RouterHandle& router,
                           PreparedDraft draft, const Clock& clock,
                           const std::shared_ptr<spdlog::logger>& log) {
  const actors::DraftRuns::Options options{.tokenizer = draft.announce.tokenizer,
                                           .context_tokens = draft.announce.context_tokens,
                                           .runs_max = draft.announce.sequences,
                                           .rows_max = draft.rows};
  const auto loop = std::make_shared<actors::DraftLoop>(
      actors::make_stepper(std::move(draft.engine)), options, clock);
  loop_ = loop;
  const schema::Announce target = as_target(draft.announce);
  const auto drafts = [loop](actors::DraftListener listener) {
    loop->report_drafts_to(std::move(listener));
    return loop;
  };
  actor_ =
      system.spawn(actors::draft_actor, actors::DraftSetup{.announce = std::move(draft.announce),
                                                           .router = router,
                                                           .routers = draft.routers,
                                                           .engine = drafts,
                                                           .log = log});
  if (!draft.answers) return;
  const auto answers = [loop](actors::EngineListener listener) {
    loop->report_answers_to(std::move(listener));
    return loop;
  };
  target_ = system.spawn(actors::target_actor, actors::TargetSetup{.announce = target,
                                                                   .router = router,
                                                                   .routers = draft.routers,
                                                                   .engine = answers,
                                                                   .drafts = {},
                                                                   .is_a_draft = true,
                                                                   .log = log});
}

RunningDraft::~RunningDraft() {
  caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
  if (target_) caf::anon_send_exit(target_, caf::exit_reason::user_shutdown);
}

void RunningDraft::forget_cached(const std::optional<std::string>& tenant) const {
  if (const auto loop = loop_.lock()) loop->forget_cached(tenant);
}

}  // namespace outrider::tools
