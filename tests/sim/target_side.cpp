#include "tests/sim/target_side.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/step_costs.hpp"

namespace outrider::sim {
namespace {

/// Rows of one step, as engines have by default.
constexpr uint32_t k_batch_tokens = 512;
/// Workers.
constexpr uint64_t k_target = 1;
constexpr uint64_t k_draft = 2;

/// An idle target as start-up measures it. A clock of its own: nothing else runs meanwhile.
class IdleTarget final : public model::StepProbe, public Clock {
 public:
  explicit IdleTarget(const StepModel& model) : model_(model) {}

  TimePoint now() const override { return now_; }
  Duration time_step(uint32_t rows, uint32_t, uint32_t) override {
    const Duration time = model_.step(rows);
    now_ += time;
    return time;
  }
  uint32_t probe_tokens_max() const override { return 16'384; }
  uint32_t batch_tokens() const override { return k_batch_tokens; }
  uint32_t local_window() const override { return 0; }

 private:
  const StepModel& model_;
  TimePoint now_{};
};

}  // namespace

TargetSide::TargetSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send)
    : scenario_(scenario),
      texts_(texts),
      queue_(queue),
      send_(std::move(send)),
      control_({.fixed_depth = scenario.fixed_depth}),
      feed_({.target = k_target,
             .tokenizer = k_tokenizer,
             .depth_max = scenario.has_draft ? scenario.depth_max : 0,
             .duty = {.always = scenario.fixed_depth || scenario.always_drafts}}),
      requests_(scenario.batch) {
  IdleTarget idle(scenario_.target);
  control_.set_costs(measure_step_costs(idle, idle));
}

void TargetSide::start() {
  // As in a server that has run for a while, requests end one by one.
  for (size_t slot = 0; slot < requests_.size(); ++slot) {
    const auto share = static_cast<double>(slot + 1) / static_cast<double>(requests_.size());
    admit(slot, 1 + static_cast<uint32_t>(share * scenario_.output_tokens));
  }
  post();
  begin_step();
}

void TargetSide::admit(size_t slot, uint32_t output_tokens) {
  Request& request = requests_[slot];
  request.id = ++ids_;
  request.end = scenario_.prompt_tokens + output_tokens;
  GenerationRequest asked;
  asked.sampling.seed = request.id;
  asked.sampling.temperature = 0;
  for (uint32_t i = 0; i < scenario_.prompt_tokens; ++i) {
    asked.prompt.push_back(texts_.truth(request.id, i));
  }
  request.drafts = std::make_unique<model::Drafts>(
      scenario_.prompt_tokens, model::text_hash(model::k_empty_text, asked.prompt),
      control_.acceptance_of(0));
  feed_.begin({request.id, 0}, asked);
}

/// What the feed wants said; a lease is had at once.
void TargetSide::post() {
  std::vector<actors::DraftInput> inputs;
  for (bool again = true; again;) {
    actors::FeedOutbox outbox = feed_.take_outbox();
    again = !outbox.asks.empty();
    for (const schema::LeaseDraft& ask : outbox.asks) {
      feed_.take(schema::DraftLease{ask.request, 1, k_draft, {}});
    }
    for (auto& [worker, message] : outbox.to_drafts) {
      std::visit([&](auto& content) { inputs.emplace_back(std::move(content)); }, message);
    }
    std::ranges::move(outbox.hints, std::back_inserter(arrived_));
  }
  if (!inputs.empty()) send_(std::move(inputs));
}

void TargetSide::take(const actors::DraftReplies& replies) {
  for (const schema::DraftReady& ready : replies.readies) feed_.take(ready);
  for (const schema::DraftResync& resync : replies.resyncs) feed_.take(resync);
  feed_.take(schema::DraftHints{replies.hints});
  for (const schema::DraftClose& close : replies.closes) feed_.take(close);
  post();
}

/// Between two steps, as an engine is told.
void TargetSide::insert_arrived() {
  for (const actors::DraftedHint& hint : std::exchange(arrived_, {})) {
    const auto request = std::find_if(requests_.begin(), requests_.end(),
                                      [&](const Request& r) { return r.id == hint.key.session; });
    if (request == requests_.end()) continue;
    request->drafts->trie.insert({.base_length = hint.base_length,
                                  .base_hash = hint.base_hash,
                                  .branches = hint.branches,
                                  .source = HintSource::draft_model});
  }
}

void TargetSide::begin_step() {
  decoding_.clear();
  for (Request& request : requests_) {
    model::Drafts& drafts = *request.drafts;
    const uint32_t room = request.end - drafts.trie.length() - 1;
    const uint32_t most = std::min(scenario_.depth_max, room);
    control_.find_path(drafts, most);
    decoding_.push_back({drafts.trie.length() - 1, &drafts, most});
  }
  const auto batch = static_cast<uint32_t>(decoding_.size());
  const uint32_t rows_max = k_batch_tokens - std::min(k_batch_tokens, batch);
  hints_could_pay_ = control_.could_pay(decoding_, {}, rows_max);
  if (hints_could_pay_) {
    control_.choose(decoding_, {}, rows_max, depths_);
  } else {
    depths_.assign(decoding_.size(), 0);
  }
  uint32_t rows = batch;
  for (size_t i = 0; i < depths_.size(); ++i) {
    decoding_[i].drafts->path.resize(depths_[i]);
    rows += depths_[i];
  }
  const Duration time = scenario_.target.step(rows);
  queue_.after(time, [this, time] { end_step(time); });
}

void TargetSide::end_step(Duration time) {
  std::vector<model::StepShare> shares;
  for (const model::DecodingSequence& sequence : decoding_) {
    shares.push_back({static_cast<uint32_t>(1 + sequence.drafts->path.size()), sequence.context});
  }
  control_.observe(shares, time);
  ++steps_;
  updates_.clear();
  for (size_t slot = 0; slot < requests_.size(); ++slot) verify(slot);
  insert_arrived();
  actors::StepReport report{.sequences = static_cast<uint32_t>(requests_.size()),
                            .decodes_only = true,
                            .time = time,
                            .hints_could_pay = hints_could_pay_};
  for (const model::ChoiceUpdate& update : updates_) {
    report.tokens += static_cast<uint32_t>(update.tokens.size());
  }
  feed_.commit(updates_, report);
  for (size_t slot = 0; slot < requests_.size(); ++slot) {
    if (requests_[slot].drafts->trie.length() >= requests_[slot].end) {
      admit(slot, scenario_.output_tokens);
    }
  }
  post();
  begin_step();
}

/// Accept if equal, as the engine's sampler does with the rows of a path.
void TargetSide::verify(size_t slot) {
  Request& request = requests_[slot];
  model::Drafts& drafts = *request.drafts;
  const uint32_t length = drafts.trie.length();
  model::ChoiceUpdate& update = updates_.emplace_back();
  update.key = {request.id, 0};
  update.first_index = length - scenario_.prompt_tokens;
  bool goes_on = true;
  for (size_t i = 0; goes_on; ++i) {
    const int32_t token = texts_.truth(request.id, length + static_cast<uint32_t>(i));
    update.tokens.push_back({token, std::nullopt});
    goes_on = i < drafts.path.size() && drafts.path[i].token == token;
  }
  tokens_ += update.tokens.size();
  if (!drafts.path.empty()) {
    ++drafts_;
    draft_tokens_ += drafts.path.size();
    accepted_tokens_ += update.tokens.size() - 1;
    control_.learn(update.tokens.size());
  }
  for (const TokenOut& token : update.tokens) drafts.commit(token.id);
  if (drafts.trie.length() >= request.end) update.finish = Finish{.reason = FinishReason::length};
}

Outcome TargetSide::outcome() const {
  const auto steps = static_cast<double>(steps_);
  const auto batch = static_cast<double>(requests_.size());
  const auto of = [](uint64_t part, double whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / whole;
  };
  Outcome out;
  out.tokens_per_step = of(tokens_, steps * batch);
  out.drafted = of(drafts_, steps * batch);
  out.depth = of(draft_tokens_, static_cast<double>(drafts_));
  out.accepted = of(accepted_tokens_, static_cast<double>(draft_tokens_));
  const double plain_ms = scenario_.target.ms(batch) / batch;
  out.speedup = static_cast<double>(tokens_) * plain_ms / to_ms(queue_.now());
  return out;
}

}  // namespace outrider::sim
