#include "tests/exactness/run_ahead.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace outrider::exactness {
namespace {

constexpr uint64_t k_target = 1;
constexpr uint64_t k_draft = 2;
constexpr const char* k_tokenizer = "tokens";

}  // namespace

RunAhead::RunAhead(const std::shared_ptr<const model::LoadedModel>& draft, uint32_t depth,
                   uint32_t local_window, uint32_t context_tokens, Random& random,
                   const Clock& clock)
    : model_(draft),
      local_window_(local_window),
      context_tokens_(context_tokens),
      random_(random),
      clock_(clock),
      feed_({.target = k_target,
             .tokenizer = k_tokenizer,
             .depth_max = depth,
             .duty = {.always = true}}) {
  begin_anew();
}

/// The draft that there was has died.
void RunAhead::begin_anew() {
  runs_.reset();
  model::EngineOptions options;
  options.context_tokens = context_tokens_;
  options.batch_tokens = 256;
  options.sequences = 8;
  options.waiting = 4096;
  options.kv_memory_bytes = uint64_t{16} << 20;
  options.local_window = local_window_;
  auto engine = model::Engine::create(model_, options, clock_);
  OUTRIDER_CHECK(engine.ok(), engine.error().message);
  engine_ = actors::make_stepper(std::move(engine).value());
  runs_ = std::make_unique<actors::DraftRuns>(
      *engine_, actors::DraftRuns::Options{
                    .tokenizer = k_tokenizer, .context_tokens = context_tokens_, .runs_max = 12});
  ++generation_;
  for (const RequestKey key : leased_) {
    feed_.take(schema::DraftLease{key, generation_, k_draft, {}});
  }
}

void RunAhead::submitted(RequestKey key, const GenerationRequest& request) {
  feed_.begin(key, request);
}

void RunAhead::heard(std::span<const model::ChoiceUpdate> updates) {
  feed_.commit(updates, {});
}

void RunAhead::post(actors::FeedOutbox outbox, model::Engine* target) {
  for (const schema::LeaseDraft& ask : outbox.asks) {
    leased_.push_back(ask.request);
    feed_.take(schema::DraftLease{ask.request, generation_, k_draft, {}});
  }
  for (const schema::EndLease& ended : outbox.ends) std::erase(leased_, ended.request);
  for (auto& [worker, message] : outbox.to_drafts) {
    if (random_.chance(0.05f)) continue;
    std::visit([&](auto& content) { to_draft_.emplace_back(std::move(content)); }, message);
  }
  if (target == nullptr) return;
  for (const actors::DraftedHint& hint : outbox.hints) {
    target->hint(hint.key, hint.choice,
                 {.base_length = hint.base_length,
                  .base_hash = hint.base_hash,
                  .branches = hint.branches,
                  .source = HintSource::draft_model});
  }
}

template <class Message>
void RunAhead::post_back(std::vector<Message>& messages) {
  for (Message& message : messages) {
    if (!random_.chance(0.05f)) to_target_.emplace_back(std::move(message));
  }
}

template <class Message>
Message RunAhead::take(std::vector<Message>& wire) {
  const uint32_t at = random_.chance(0.8f) ? 0 : random_.below(static_cast<uint32_t>(wire.size()));
  if (random_.chance(0.05f)) return wire[at];
  Message message = std::move(wire[at]);
  wire.erase(wire.begin() + at);
  return message;
}

void RunAhead::go_on(model::Engine& target) {
  if (random_.chance(0.01f)) begin_anew();
  if (random_.chance(0.1f)) feed_.beat();
  post(feed_.take_outbox(), &target);
  post(feed_.take_outbox(), &target);  // What a lease that came at once set off.
  for (uint32_t i = random_.below(6); i > 0; --i) {
    if (!to_draft_.empty() && random_.chance(0.9f)) runs_->take(take(to_draft_));
    runs_->advance(engine_->step(), std::chrono::milliseconds(1));
    engine_->check_conservation();
    actors::DraftReplies replies = runs_->take_replies();
    post_back(replies.readies);
    post_back(replies.resyncs);
    post_back(replies.closes);
    std::vector<schema::DraftHints> hints;
    for (schema::DraftHint& hint : replies.hints) hints.push_back({{std::move(hint)}});
    post_back(hints);
    if (to_target_.empty() || random_.chance(0.1f)) continue;
    feed_.heard(k_draft);
    std::visit([&](const auto& content) { feed_.take(content); }, take(to_target_));
    post(feed_.take_outbox(), &target);
  }
}

}  // namespace outrider::exactness
