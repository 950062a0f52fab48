#include "tools/draft_model.hpp"

#include <caf/send.hpp>
#include <utility>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/system.hpp"

namespace outrider::tools {
namespace {

/// The draft actor's hold on its engine. Shared, so that a reset finds a live engine without
/// keeping a stopped one.
class DraftHold final : public actors::DraftPort {
 public:
  explicit DraftHold(std::shared_ptr<actors::DraftLoop> loop) : loop_(std::move(loop)) {}

  void give(actors::DraftInput input) override { loop_->give(std::move(input)); }
  actors::EngineSnapshot snapshot() const override { return loop_->snapshot(); }
  uint32_t runs() const override { return loop_->runs(); }

 private:
  std::shared_ptr<actors::DraftLoop> loop_;
};

}  // namespace

Result<PreparedDraft> prepare_draft(const DraftModel& draft, const Clock& clock) {
  auto engine = model::Engine::create(draft.model, draft.options, clock);
  if (!engine) return fail(engine.error().code, "draft: " + engine.error().message, "draft");
  PreparedDraft prepared;
  prepared.competes = draft.competes;
  prepared.rows = draft.rows;
  schema::Announce& announce = prepared.announce;
  announce.worker = random_bits();
  announce.incarnation = random_bits();
  announce.role = schema::Role::draft;
  announce.name = "draft-0";
  announce.model = draft.name;
  announce.fingerprint = to_hex((*engine)->fingerprint());
  announce.tokenizer = to_hex(draft.model->tokenizer->fingerprint());
  announce.context_tokens = (*engine)->context_tokens();
  announce.sequences = limits::draft_runs_max;
  announce.waiting = draft.options.waiting;
  announce.blocks_total = (*engine)->stats().blocks_total;
  announce.block_tokens = draft.options.block_tokens;
  prepared.engine = std::move(*engine);
  return prepared;
}

RunningDraft::RunningDraft(caf::actor_system& system, const schema::RouterHandle& router,
                           PreparedDraft draft, const Clock& clock,
                           std::shared_ptr<spdlog::logger> log) {
  auto engine = std::make_shared<std::unique_ptr<model::Engine>>(std::move(draft.engine));
  const actors::DraftRuns::Options options{.tokenizer = draft.announce.tokenizer,
                                           .context_tokens = draft.announce.context_tokens,
                                           .runs_max = draft.announce.sequences,
                                           .rows_max = draft.rows};
  const auto make = [engine, options, &clock, watched = loop_](actors::DraftListener listener) {
    auto loop = std::make_shared<actors::DraftLoop>(actors::make_stepper(std::move(*engine)),
                                                    options, std::move(listener), clock);
    watched->store(loop);
    return std::unique_ptr<actors::DraftPort>(std::make_unique<DraftHold>(std::move(loop)));
  };
  actor_ =
      system.spawn(actors::draft_actor, actors::DraftSetup{.announce = std::move(draft.announce),
                                                           .router = router,
                                                           .routers = draft.routers,
                                                           .engine = make,
                                                           .log = std::move(log)});
}

RunningDraft::~RunningDraft() {
  caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
}

void RunningDraft::forget_cached(const std::optional<std::string>& tenant) const {
  if (const auto loop = loop_->load().lock()) loop->forget_cached(tenant);
}

}  // namespace outrider::tools
