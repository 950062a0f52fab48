#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "model/engine_state.hpp"

/// Drafting: which hints a step verifies, and what is learnt from it. The target's own sampler
/// decides every token, so nothing here can change what a request gets.
namespace outrider::model {
namespace {

/// Confidences of a source are believed as far as they came true: a few observations of the
/// request's own weigh as much as all others, and these as much as many.
constexpr float k_own_weight = 4;
constexpr float k_engine_weight = 32;
/// Steps of a sequence with hints in store but none verified, after which one is, to see whether
/// they got better; but no more than one of so many rows of all.
constexpr uint32_t k_probe_after = 48;
constexpr uint32_t k_probe_rows = 256;
/// What hints must promise: less is within what costs and chances are known to, and where a step is
/// full of rows they never promise much.
constexpr double k_gain_min = 1.08;

}  // namespace

void Engine::set_step_costs(const StepCosts& costs) {
  state_->costs = costs;
  state_->cost_refresh = CostRefresh(costs);
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

bool Engine::redirect(RequestKey key, std::span<const int32_t> output) {
  State& s = *state_;
  const auto at = s.requests.find(key);
  if (at == s.requests.end()) return false;
  ActiveRequest& request = *at->second;
  Choice& choice = request.choices.front();
  OUTRIDER_CHECK(request.choices.size() == 1 && !choice.text, key.session);
  OUTRIDER_CHECK(output.size() < request.max_tokens, output.size(), request.max_tokens);
  const auto parting =
      std::mismatch(output.begin(), output.end(), choice.output.begin(), choice.output.end());
  const auto common = request.prompt_size() + static_cast<uint32_t>(parting.first - output.begin());
  request.set_output(choice, output);
  // The last token's row is computed (again): it gives the next one.
  choice.kv.crop(std::min({choice.kv.length(), common, request.length(choice) - 1}));
  choice.chain.resize(std::min<size_t>(choice.chain.size(), common / s.options.block_tokens));
  return true;
}

Drafts& Engine::State::drafts_of(const ActiveRequest& request, Choice& choice) const {
  if (choice.drafts) return *choice.drafts;
  const std::vector<int32_t>& prompt = request.request.prompt;
  const uint64_t hash = text_hash(text_hash(k_empty_text, prompt), choice.output);
  choice.drafts =
      std::make_unique<Drafts>(static_cast<uint32_t>(prompt.size() + choice.output.size()), hash);
  if (options.speculation.ngram) {
    choice.drafts->own_text.append(prompt);
    choice.drafts->own_text.append(choice.output);
  }
  return *choice.drafts;
}

/// The best path of what is hinted at, as far as the choice may still go, and how far it is
/// believed.
void Engine::State::find_path(const ActiveRequest& request, Choice& choice) {
  Drafts& drafts = *choice.drafts;
  const SpeculationOptions& wanted = options.speculation;
  // The last token needs no hint: its own row is drawn from the row before.
  const auto room = request.max_tokens - static_cast<uint32_t>(choice.output.size()) - 1;
  const uint32_t own = request.request.speculation.depth_max;
  const uint32_t most = own == 0 ? wanted.depth_max : std::min(own, wanted.depth_max);
  const uint32_t depth = std::min({most, room, k_hint_depth_max, batch_tokens - 1,
                                   static_cast<uint32_t>(transformer.logit_rows_max()) - 1});
  drafts.path.clear();
  drafts.survival.clear();
  if (depth == 0) return;
  if (wanted.ngram) draft_from_texts(request, drafts, depth);
  drafts.trie.best_path(depth, drafts.path);
  float survives = 1;
  bool believed = true;
  drafts.wanted = 0;
  for (const HintTrie::Step& step : drafts.path) {
    const float others = acceptance.probability(step.source, step.confidence,
                                                float{1} * step.confidence / 255, k_engine_weight);
    const float chance =
        drafts.acceptance.probability(step.source, step.confidence, others, k_own_weight);
    believed = believed && chance >= wanted.accept_min;
    if (believed) ++drafts.wanted;
    survives = believed ? survives * chance : 0;
    drafts.survival.push_back(survives);
  }
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

/// Depths for the sequences that decode in this step.
void Engine::State::choose_hints() {
  const SpeculationOptions& wanted = options.speculation;
  if (wanted.depth_max == 0 || (!wanted.fixed_depth && costs.rows.empty())) return;
  candidates.clear();
  decoding.clear();
  for (size_t i = 0; i < views.size(); ++i) {
    const SequenceView& view = views[i];
    if (!view.running || view.parked || view.length - view.computed != 1) continue;
    auto& [request, choice] = scheduled[i];
    if (request->over || request->forks_pending()) continue;
    const bool speculates = request->request.speculation.enabled;
    if (speculates && wanted.ngram) drafts_of(*request, *choice);
    if (speculates && choice->drafts) find_path(*request, *choice);
    const bool hinted = speculates && choice->drafts && !choice->drafts->path.empty();
    candidates.push_back({view.computed, hinted ? std::span<const float>(choice->drafts->survival)
                                                : std::span<const float>()});
    decoding.push_back(static_cast<uint32_t>(i));
  }
  if (!wanted.fixed_depth) {
    const auto rows = static_cast<uint32_t>(decoding.size());
    choose_depths(candidates, cost_refresh.costs(), batch_tokens - std::min(batch_tokens, rows),
                  k_gain_min, depth_scratch, depths);
  }
  for (size_t i = 0; i < decoding.size(); ++i) {
    if (candidates[i].survival.empty()) continue;
    Drafts& drafts = *scheduled[decoding[i]].choice->drafts;
    uint32_t depth = wanted.fixed_depth ? drafts.wanted : depths[i];
    if (depth == 0) {
      ++unverified;
      if (++drafts.plain_steps >= k_probe_after && unverified >= k_probe_rows) {
        depth = 1;
        unverified = 0;
      }
    }
    views[decoding[i]].hints = depth;
  }
}

/// `drawn` tokens came from a row and the hints behind it: all but the last one are hints that came
/// true.
void Engine::State::learn(ActiveRequest& request, Choice& choice, size_t drawn) {
  Drafts& drafts = *choice.drafts;
  HintCounters& seen = counters.hints;
  drafts.plain_steps = 0;
  ++seen.drafts;
  seen.draft_tokens += drafts.path.size();
  request.draft_tokens += static_cast<uint32_t>(drafts.path.size());
  for (size_t i = 0; i < std::min(drawn, drafts.path.size()); ++i) {
    const bool came_true = i + 1 < drawn;
    const HintTrie::Step& step = drafts.path[i];
    drafts.acceptance.count(step.source, step.confidence, came_true);
    acceptance.count(step.source, step.confidence, came_true);
    if (!came_true) continue;
    ++seen.accepted_tokens;
    ++request.accepted_tokens;
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
  if (sampled == ids.size()) cost_refresh.observe(shares_of_step, clock.now() - since);
}

}  // namespace outrider::model
