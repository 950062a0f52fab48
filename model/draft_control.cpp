#include "model/draft_control.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "base/limits.hpp"

namespace outrider::model {
namespace {

/// Confidences of a source are believed as far as they came true: a few observations of the
/// request's own weigh as much as all others, and these as much as many.
constexpr float k_own_weight = 4;
constexpr float k_all_weight = 32;
/// What all hints are taken to claim that were drawn to be verified by rejection.
constexpr uint8_t k_drawn_confidence = 160;
/// What hints must promise: less is within what costs and chances are known to, and where a step is
/// full of rows they never promise much.
constexpr double k_gain_min = 1.08;
/// What is explored are as many hints as would pay if rows were as cheap as can be hoped, often
/// enough in turn for costs to follow. The time for it is saved up and owed, in steps, to that
/// bound: a try that somebody disturbed may have cost any number.
constexpr double k_explore_steps = 128;
constexpr double k_explore_debt_steps = 8;
constexpr uint32_t k_tries = 5;
/// After so many steps with hints in a row there is one without, where it is not known what such
/// steps take of late: what hints cost is the difference.
constexpr uint32_t k_plain_after = 2;
/// And after so many in any case: steps that are only compared with others like them would take
/// their common mistake for the truth. More where a plain step loses more: a 64th at most.
constexpr double k_plain_at_least_after = 16;
constexpr double k_plain_loss_inverse = 64;
constexpr double k_hints_true_decay = 1 / 16.0;
/// Survival of hints that are sure to come true.
constexpr auto k_certain = [] {
  std::array<float, k_hint_depth_max> survival;
  survival.fill(1);
  return survival;
}();

}  // namespace

void Drafts::index_own_text(std::span<const int32_t> prompt, std::span<const int32_t> output) {
  own_text.append(prompt.last(std::min<size_t>(prompt.size(), limits::own_text_prompt_tokens_max)));
  own_text.append(output);
  indexes_own_text = true;
}

void Drafts::forget_own_text() {
  own_text = {};
  indexes_own_text = false;
}

float Drafts::believed(HintSource source, uint8_t confidence) const {
  const float others =
      of_tenant->probability(source, confidence, float{1} * confidence / 255, k_all_weight);
  return acceptance.probability(source, confidence, others, k_own_weight);
}

void Drafts::commit(int32_t id) {
  struct Claim {
    int32_t token = 0;
    uint8_t confidence = 0;
    float believed = 0;
  };
  struct Claims {
    Claim surest, likeliest;
  };
  std::array<Claims, k_hint_sources> claims;
  std::optional<int32_t> drawn;
  trie.for_each_next([&](int32_t token, HintSource source, uint8_t confidence, bool is_drawn) {
    if (by_rejection && is_drawn) {
      drawn = token;
      return;
    }
    auto& [surest, likeliest] = claims[static_cast<size_t>(source)];
    const Claim claim = {token, confidence, believed(source, confidence)};
    if (claim.confidence > surest.confidence) surest = claim;
    if (claim.believed > likeliest.believed) likeliest = claim;
  });
  const auto count = [&](HintSource source, int32_t token, uint8_t confidence) {
    acceptance.count(source, confidence, token == id);
    of_tenant->count(source, confidence, token == id);
  };
  if (drawn) count(HintSource::draft_model, *drawn, k_drawn_confidence);
  for (size_t source = 0; source < k_hint_sources; ++source) {
    const auto& [surest, likeliest] = claims[source];
    const auto of = static_cast<HintSource>(source);
    if (surest.confidence > 0) count(of, surest.token, surest.confidence);
    if (likeliest.believed > surest.believed) count(of, likeliest.token, likeliest.confidence);
  }
  trie.commit(id);
  if (indexes_own_text) own_text.append(id);
}

void DraftControl::find_path(Drafts& drafts, uint32_t depth) const {
  drafts.path.clear();
  drafts.survival.clear();
  drafts.wanted = 0;
  if (drafts.by_rejection) drafts.trie.drawn_path(depth, drafts.path);
  for (HintTrie::Step& step : drafts.path) {
    step.confidence = k_drawn_confidence;
    step.source = HintSource::draft_model;
  }
  if (drafts.path.empty()) {
    drafts.trie.best_path(
        depth,
        [&](HintSource source, uint8_t confidence) { return drafts.believed(source, confidence); },
        drafts.path);
    // What was drawn farther on is chosen by what it is: it waits for its turn.
    const auto drawn = std::ranges::find_if(
        drafts.path, [](const HintTrie::Step& step) { return step.drawn_from != nullptr; });
    if (drafts.by_rejection) drafts.path.erase(drawn, drafts.path.end());
  }
  float survives = 1;
  bool believed = true;
  for (const HintTrie::Step& step : drafts.path) {
    const float chance = drafts.believed(step.source, step.confidence);
    believed = believed && chance >= options_.accept_min;
    if (believed) ++drafts.wanted;
    survives = believed ? survives * chance : 0;
    drafts.survival.push_back(survives);
  }
}

/// Chunks are predicted by what they took at the start, when somebody may have disturbed: hints
/// are never taken for cheaper than they are, and the step for longer as well.
StepBeside DraftControl::beside(const PromptRows& prompts) const {
  const StepCosts& costs = refresh_.costs();
  if (prompts.rows == 0) return {};
  return {.sequences = prompts.sequences,
          .ns = static_cast<double>(costs.prefill(prompts.rows, 0).count()),
          .row_ns = static_cast<double>(costs.prefill_row_ns)};
}

void DraftControl::choose(std::span<const DecodingSequence> sequences, const PromptRows& prompts,
                          uint32_t rows_max, std::vector<uint32_t>& depths) {
  depths.assign(sequences.size(), 0);
  tried_ns_ = 0;
  if (is_off()) return;
  if (options_.fixed_depth) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].drafts != nullptr) depths[i] = sequences[i].drafts->wanted;
    }
    return;
  }
  if (is_plain_step_due(static_cast<uint32_t>(sequences.size()), prompts)) return;
  candidates_.clear();
  for (const DecodingSequence& sequence : sequences) {
    candidates_.push_back({sequence.context, sequence.drafts
                                                 ? std::span<const float>(sequence.drafts->survival)
                                                 : std::span<const float>()});
  }
  const StepBeside others = beside(prompts);
  choose_depths(candidates_, others, refresh_.costs(), rows_max, k_gain_min, scratch_, depths);
  if (prompts.rows == 0) try_what_is_hoped(others, rows_max, depths);
}

/// Beside prompts no step tells what it takes.
bool DraftControl::is_plain_step_due(uint32_t sequences, const PromptRows& prompts) {
  if (prompts.rows > 0 || hinted_steps_ < k_plain_after) return false;
  const bool knows_both = refresh_.knows(sequences) && refresh_.knows_about(hinted_rows_);
  const double lost = hints_true_ / (1 + hints_true_);
  const double after = std::max(k_plain_at_least_after, k_plain_loss_inverse * lost);
  if (knows_both && hinted_steps_ < after) return false;
  hinted_steps_ = 0;
  return true;
}

void DraftControl::try_what_is_hoped(const StepBeside& others, uint32_t rows_max,
                                     std::vector<uint32_t>& depths) {
  if (tries_left_ == 0 && ++steps_ % options_.explore_every != 0) return;
  if (was_try_) return;  // Each is compared with the step before it: one moment is to be no cost.
  choose_depths(candidates_, others, refresh_.hoped(), rows_max, k_gain_min, scratch_,
                hoped_depths_);
  const auto decoding = static_cast<double>(depths.size());
  const auto ns = [&](const StepCosts& costs, const std::vector<uint32_t>& hints) {
    const uint32_t rows = std::accumulate(hints.begin(), hints.end(), 0u);
    return costs.rows_ns(decoding + rows);
  };
  const StepCosts& costs = refresh_.costs();
  if (ns(costs, hoped_depths_) <= ns(costs, depths)) return;
  // What is known to be dear may not be: asked for is what is hoped, and charged what it takes.
  const double hoped = ns(refresh_.hoped(), hoped_depths_) - ns(refresh_.hoped(), depths);
  // Of another load a try may cost more than was saved for it.
  if (to_explore_ns_ < hoped * (tries_left_ == 0 ? k_tries : 1)) {
    tries_left_ = 0;
    return;
  }
  tries_left_ = (tries_left_ == 0 ? k_tries : tries_left_) - 1;
  tried_ns_ = ns(costs, hoped_depths_) - ns(costs, depths);
  depths = hoped_depths_;
  ++explored_steps_;
}

/// What a try took more than the step would have taken without, as slow as the one before it; no
/// more than was known. One that follows a disturbed step seems to gain: no more than was known, in
/// a usual moment, or a single one would pay for hundreds.
void DraftControl::charge_try(std::span<const StepShare> shares, Duration time) {
  const double pace = refresh_.pace();
  const auto known = static_cast<double>(refresh_.costs().step(shares).count());
  const double without = (known - tried_ns_) * pace;
  const double least = -tried_ns_ * std::min(pace, refresh_.usual_pace());
  to_explore_ns_ -=
      std::clamp(static_cast<double>(time.count()) - without, least, tried_ns_ * pace);
}

void DraftControl::pass(Duration time) {
  const auto taken = static_cast<double>(time.count());
  to_explore_ns_ = std::clamp(to_explore_ns_ + options_.explore_share * taken,
                              -k_explore_debt_steps * taken, k_explore_steps * taken);
  came_true_ = 0;
  was_try_ = std::exchange(tried_ns_, 0) > 0;
}

void DraftControl::observe(std::span<const StepShare> shares, Duration time) {
  if (tried_ns_ > 0) charge_try(shares, time);
  refresh_.observe(shares, time);
  const double came_true = came_true_ / static_cast<double>(shares.size());
  pass(time);
  uint32_t rows = 0;
  for (const StepShare& share : shares) rows += share.rows;
  const bool is_hinted = rows > shares.size();
  hinted_steps_ = is_hinted ? hinted_steps_ + 1 : 0;
  if (!is_hinted) return;
  hinted_rows_ = rows;
  hints_true_ += k_hints_true_decay * (came_true - hints_true_);
}

bool DraftControl::could_pay(std::span<const DecodingSequence> sequences, const PromptRows& prompts,
                             uint32_t rows_max) {
  if (is_off()) return false;
  if (options_.fixed_depth) return true;
  candidates_.clear();
  for (const DecodingSequence& sequence : sequences) {
    candidates_.push_back({sequence.context, std::span(k_certain).first(
                                                 std::min(sequence.depth_max, k_hint_depth_max))});
  }
  const auto pays = [&](const StepCosts& costs) {
    return model::could_pay(candidates_, beside(prompts), costs, rows_max, k_gain_min, scratch_);
  };
  return pays(refresh_.costs()) || pays(refresh_.hoped());
}

std::shared_ptr<Acceptance> DraftControl::acceptance_of(uint64_t tenant) {
  // Those that no sequence has now begin anew: a tenant more costs some hints, not memory.
  if (of_tenants_.size() >= limits::draft_tenants_max && !of_tenants_.contains(tenant)) {
    std::erase_if(of_tenants_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  std::shared_ptr<Acceptance>& found = of_tenants_[tenant];
  if (!found) found = std::make_shared<Acceptance>(k_all_decay);
  return found;
}

}  // namespace outrider::model
