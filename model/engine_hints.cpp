#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "model/engine_state.hpp"

/// Drafting: which hints a step verifies, and what is learnt from it. The target's own sampler
/// decides every token, so nothing here can change what a request gets.
namespace outrider::model {
namespace {

/// A step that has indexed so many tokens, in 2 ms or less, begins no other text.
constexpr size_t k_step_indexes = 2048;

}  // namespace

void Engine::set_step_costs(const StepCosts& costs) {
  state_->draft_control.set_costs(costs);
}

const StepCosts& Engine::step_costs() const {
  return state_->draft_control.costs();
}

HintOutcome Engine::hint(RequestKey key, uint32_t index, const Hint& hint) {
  State& s = *state_;
  const auto at = s.requests.find(key);
  HintOutcome outcome = HintOutcome::absent;
  if (at != s.requests.end() && index < at->second->choices.size()) {
    ActiveRequest& request = *at->second;
    Choice& choice = request.choices[index];
    const uint32_t vocabulary = s.model->config.vocab;
    const bool is_known = std::all_of(
        hint.branches.begin(), hint.branches.end(),
        [&](const HintBranch& branch) { return static_cast<uint32_t>(branch.token) < vocabulary; });
    if (!is_known) {
      outcome = HintOutcome::malformed;
    } else if (choice.stage != Choice::Stage::done) {
      outcome = s.drafts_of(request, choice).trie.insert(hint);
    }
  }
  ++s.counters.hints.hints[static_cast<size_t>(outcome)];
  return outcome;
}

/// The request's, if it can go on behind `output`.
ActiveRequest* Engine::State::continuable(RequestKey key, std::span<const int32_t> output) {
  const auto at = requests.find(key);
  if (at == requests.end()) return nullptr;
  ActiveRequest& request = *at->second;
  OUTRIDER_CHECK(request.choices.size() == 1 && !request.choices.front().text, key.session);
  const bool is_known = std::all_of(output.begin(), output.end(), [&](int32_t id) {
    return static_cast<uint32_t>(id) < model->config.vocab;
  });
  return is_known && output.size() < request.max_tokens && !request.over ? &request : nullptr;
}

/// `choice` has what was computed of another output.
void Engine::State::set_output(ActiveRequest& request, Choice& choice,
                               std::span<const int32_t> before, std::span<const int32_t> output) {
  const auto parting = std::mismatch(output.begin(), output.end(), before.begin(), before.end());
  const auto common = request.prompt_size() + static_cast<uint32_t>(parting.first - output.begin());
  request.set_output(choice, output);
  // The last token's row is computed (again): it gives the next one.
  choice.kv.crop(std::min({choice.kv.length(), common, request.length(choice) - 1}));
  choice.chain.resize(std::min<size_t>(choice.chain.size(), common / options.block_tokens));
}

bool Engine::redirect(RequestKey key, std::span<const int32_t> output) {
  ActiveRequest* request = state_->continuable(key, output);
  if (request == nullptr) return false;
  Choice& choice = request->choices.front();
  const std::vector<int32_t> before = choice.output;
  state_->set_output(*request, choice, before, output);
  return true;
}

bool Engine::fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) {
  State& s = *state_;
  const ActiveRequest* source = s.continuable(key, output);
  // A draft takes the slot of what is none.
  if (source == nullptr || s.running(source->is_draft()) >= s.options.sequences) return false;
  GenerationRequest request = source->request;
  request.committed.clear();
  if (!submit(fresh, std::move(request), source->submitted)) return false;
  ActiveRequest& forked = *s.requests.at(fresh);
  Choice& choice = forked.choices.front();
  const Choice& from = source->choices.front();
  choice.kv = from.kv.fork();
  choice.chain = from.chain;
  choice.stage = choice.kv.length() > 0 ? Choice::Stage::running : Choice::Stage::waiting;
  if (choice.stage == Choice::Stage::running) forked.admitted = s.clock.now();
  s.set_output(forked, choice, from.output, output);
  return true;
}

Drafts& Engine::State::drafts_of(const ActiveRequest& request, Choice& choice) {
  if (choice.drafts) return *choice.drafts;
  const std::vector<int32_t>& prompt = request.request.prompt;
  const uint64_t hash = text_hash(text_hash(k_empty_text, prompt), choice.output);
  choice.drafts =
      std::make_unique<Drafts>(static_cast<uint32_t>(prompt.size() + choice.output.size()), hash,
                               draft_control.acceptance_of(request.owner));
  choice.drafts->by_rejection = verifies_by_rejection(request.request);
  return *choice.drafts;
}

/// Behind its next row, as far as the choice may still go.
uint32_t Engine::State::hints_max(const ActiveRequest& request, const Choice& choice) const {
  const SpeculationOptions& wanted = options.speculation;
  // The last token needs no hint: its own row is drawn from the row before.
  const auto room = request.max_tokens - static_cast<uint32_t>(choice.output.size()) - 1;
  const uint32_t own = request.request.speculation.depth_max;
  const uint32_t most = own == 0 ? wanted.depth_max : std::min(own, wanted.depth_max);
  return std::min({most, room, k_hint_depth_max, batch_tokens - 1,
                   static_cast<uint32_t>(transformer.logit_rows_max()) - 1});
}

/// How the request's own text went on the last time, or else an earlier answer.
void Engine::State::draft_from_texts(const ActiveRequest& request, Drafts& drafts, uint32_t depth) {
  const std::span<const int32_t> text = drafts.own_text.tokens();
  HintSource source = HintSource::own_text;
  branches.clear();
  if (const auto match = drafts.own_text.find(text)) {
    drafts.own_text.draft(*match, depth, branches);
  } else {
    const size_t end = std::min<size_t>(text.size(), NgramIndex::k_match_max);
    past_outputs.draft(request.root, text.last(end), depth, branches);
    source = HintSource::past_outputs;
  }
  if (branches.empty()) return;
  const HintOutcome outcome = drafts.trie.insert({.base_length = drafts.trie.length(),
                                                  .base_hash = drafts.trie.hash(),
                                                  .branches = branches,
                                                  .source = source});
  ++counters.hints.hints[static_cast<size_t>(outcome)];
}

/// Before this step is planned: of prompts that are under way, which get rows if any do. Whether
/// one that waits is admitted nobody knows yet: its first rows are not counted.
PromptRows Engine::State::prompt_rows(uint32_t rows_max) const {
  PromptRows prompts;
  for (const SequenceView& view : views) {
    const uint32_t missing = view.length - view.computed;
    if (!view.running || view.parked || view.draft || missing == 1) continue;
    ++prompts.sequences;
    prompts.rows += std::min({missing, view.rows_max, rows_max - prompts.rows});
  }
  return prompts;
}

/// Depths for the sequences that decode in this step.
void Engine::State::choose_hints() {
  counters.hints_could_pay = false;
  if (draft_control.is_off()) return;
  decoding.clear();
  decoding_views.clear();
  for (size_t i = 0; i < views.size(); ++i) {
    const SequenceView& view = views[i];
    if (!view.running || view.parked || view.length - view.computed != 1) continue;
    auto& [request, choice] = scheduled[i];
    if (request->over || request->forks_pending()) continue;
    const bool speculates = request->request.speculation.enabled;
    decoding.push_back({view.computed, nullptr, speculates ? hints_max(*request, *choice) : 0});
    decoding_views.push_back(i);
  }
  const auto rows = static_cast<uint32_t>(decoding.size());
  const uint32_t others_max = batch_tokens - std::min(batch_tokens, rows);
  const PromptRows prompts = prompt_rows(others_max);
  const uint32_t rows_max = others_max - prompts.rows;
  counters.hints_could_pay = draft_control.could_pay(decoding, prompts, rows_max);
  if (!counters.hints_could_pay) return;
  size_t indexed = 0;
  for (size_t i = 0; i < decoding.size(); ++i) {
    auto& [request, choice] = scheduled[decoding_views[i]];
    if (!request->request.speculation.enabled) continue;
    const uint32_t most = decoding[i].depth_max;
    if (options.speculation.ngram && most > 0) {
      Drafts& drafts = drafts_of(*request, *choice);
      // Where hints begin to pay for many at once, indexing all of their texts would be a stall.
      if (!drafts.indexes_own_text && indexed < k_step_indexes) {
        drafts.index_own_text(request->request.prompt, choice->output);
        indexed += drafts.own_text.size();
      }
      if (drafts.indexes_own_text) draft_from_texts(*request, drafts, most);
    }
    decoding[i].drafts = choice->drafts.get();
    if (decoding[i].drafts != nullptr) draft_control.find_path(*decoding[i].drafts, most);
  }
  draft_control.choose(decoding, prompts, rows_max, depths);
  for (size_t i = 0; i < decoding.size(); ++i) views[decoding_views[i]].hints = depths[i];
}

/// `drawn` tokens came from a row and the hints behind it, all but the last one of them hints that
/// came true; the first `used` are the answer's.
void Engine::State::count_hints(ActiveRequest& request, const Choice& choice, size_t drawn,
                                size_t used) {
  const size_t verified = choice.drafts->path.size();
  const size_t accepted = std::min(drawn - std::min<size_t>(drawn, 1), used);
  HintCounters& seen = counters.hints;
  ++seen.drafts;
  seen.draft_tokens += verified;
  for (size_t i = 0; i < verified; ++i) {
    const HintSource source = choice.drafts->path[i].source;
    HintCounters::OfSource& of_source = seen.by_source[static_cast<size_t>(source)];
    ++request.draft_tokens;
    ++of_source.draft_tokens;
    if (i >= accepted) continue;
    ++request.accepted_tokens;
    ++of_source.accepted_tokens;
    ++seen.accepted_tokens;
    ++seen.accepted_at[i];
  }
}

/// `since` is when the step began. Only steps without prefill rows say what hints would cost.
void Engine::State::learn_costs(TimePoint since) {
  shares_of_step.clear();
  for (const Reading& reading : readings) {
    if (reading.scored == 0) shares_of_step.push_back({1 + reading.hints, reading.context});
  }
  const auto sampled =
      std::accumulate(shares_of_step.begin(), shares_of_step.end(), size_t{0},
                      [](size_t rows, const StepShare& share) { return rows + share.rows; });
  const Duration time = clock.now() - since;
  if (sampled == ids.size()) {
    draft_control.observe(shares_of_step, time);
  } else {
    draft_control.pass(time);
  }
}

}  // namespace outrider::model
