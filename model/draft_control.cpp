#include "model/draft_control.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/limits.hpp"

namespace outrider::model {
namespace {

/// Confidences of a source are believed as far as they came true: a few observations of the
/// request's own weigh as much as all others, and these as much as many.
constexpr float k_own_weight = 4;
constexpr float k_all_weight = 32;
/// What all hints are taken to claim that were drawn to be verified by rejection.
constexpr uint8_t k_drawn_confidence = 160;
/// Steps of a sequence with hints in store but none verified, after which one is, to see whether
/// they got better; but no more than one of so many rows of all.
constexpr uint32_t k_probe_after = 48;
constexpr uint32_t k_probe_rows = 256;
/// What hints must promise: less is within what costs and chances are known to, and where a step is
/// full of rows they never promise much.
constexpr double k_gain_min = 1.08;
/// No row costs that much of a step of one, which has read the weights already: it was measured
/// while others computed, and what is never run is never measured again. So some such steps are,
/// for that share of the time: enough of them for the costs to follow.
constexpr double k_row_share_max = 0.6;
constexpr double k_doubt_share = 0.005;
constexpr uint32_t k_doubts = 5;
/// After so many steps with hints in a row there is one without, where it is not known what such
/// steps take of late: what hints cost is the difference.
constexpr uint32_t k_plain_after = 8;
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

void DraftControl::find_path(Drafts& drafts, uint32_t depth) const {
  drafts.path.clear();
  drafts.survival.clear();
  drafts.wanted = 0;
  if (drafts.by_rejection) drafts.trie.drawn_path(depth, drafts.path);
  for (HintTrie::Step& step : drafts.path) {
    step.confidence = k_drawn_confidence;
    step.source = HintSource::draft_model;
  }
  if (drafts.path.empty()) drafts.trie.best_path(depth, drafts.path);
  const Acceptance& all = drafts.of_tenant ? *drafts.of_tenant : acceptance_;
  float survives = 1;
  bool believed = true;
  for (const HintTrie::Step& step : drafts.path) {
    const float others = all.probability(step.source, step.confidence,
                                         float{1} * step.confidence / 255, k_all_weight);
    const float chance =
        drafts.acceptance.probability(step.source, step.confidence, others, k_own_weight);
    believed = believed && chance >= options_.accept_min;
    if (believed) ++drafts.wanted;
    survives = believed ? survives * chance : 0;
    drafts.survival.push_back(survives);
  }
}

void DraftControl::choose(std::span<const DecodingSequence> sequences, uint32_t rows_max,
                          std::vector<uint32_t>& depths) {
  depths.assign(sequences.size(), 0);
  if (is_off() || is_plain_step_due(static_cast<uint32_t>(sequences.size()))) return;
  if (!options_.fixed_depth) {
    candidates_.clear();
    for (const DecodingSequence& sequence : sequences) {
      candidates_.push_back(
          {sequence.context, sequence.drafts ? std::span<const float>(sequence.drafts->survival)
                                             : std::span<const float>()});
    }
    choose_depths(candidates_, refresh_.costs(), rows_max, k_gain_min, scratch_, depths);
  }
  // Asked once for all sequences, and only if a probe is due.
  std::optional<bool> probe_pays;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Drafts* drafts = sequences[i].drafts;
    if (drafts == nullptr || drafts->path.empty()) continue;
    if (options_.fixed_depth) depths[i] = drafts->wanted;
    if (depths[i] > 0 || !is_probe_due(*drafts)) continue;
    if (!probe_pays) {
      probe_pays = options_.fixed_depth ||
                   model::could_pay(candidates_, refresh_.costs(), rows_max, k_gain_min, scratch_);
    }
    if (!*probe_pays) continue;
    unverified_ = 0;
    depths[i] = 1;
  }
  if (!options_.fixed_depth) doubt(sequences, rows_max, depths);
}

bool DraftControl::is_plain_step_due(uint32_t sequences) {
  if (options_.fixed_depth || hinted_steps_ < k_plain_after || refresh_.knows(sequences)) {
    return false;
  }
  hinted_steps_ = 0;
  return true;
}

void DraftControl::observe(std::span<const StepShare> shares, Duration time) {
  refresh_.observe(shares, time);
  since_doubts_ += time;
  const auto is_hinted = [](const StepShare& share) { return share.rows > 1; };
  hinted_steps_ = std::ranges::any_of(shares, is_hinted) ? hinted_steps_ + 1 : 0;
}

/// The next more rows of the table, if their costs cannot be true and hints fill them.
void DraftControl::doubt(std::span<const DecodingSequence> sequences, uint32_t rows_max,
                         std::vector<uint32_t>& depths) {
  const StepCosts& costs = refresh_.costs();
  const uint32_t rows =
      std::accumulate(depths.begin(), depths.end(), static_cast<uint32_t>(sequences.size()));
  const auto more = std::ranges::upper_bound(costs.rows, rows);
  if (more == costs.rows.end() || *more > rows_max) return;
  const uint32_t added = *more - rows;
  const double extra = costs.rows_ns(*more) - costs.rows_ns(rows);
  if (extra <= k_row_share_max * added * costs.rows_ns(1)) return;
  const auto deepens = [&](const DecodingSequence& sequence) {
    const auto at = static_cast<size_t>(&sequence - sequences.data());
    return sequence.drafts != nullptr && sequence.drafts->path.size() >= depths[at] + added;
  };
  const auto found = std::ranges::find_if(sequences, deepens);
  if (found == sequences.end()) return;
  if (doubts_left_ == 0) {
    const auto earned = k_doubt_share * static_cast<double>(since_doubts_.count());
    if (earned < k_doubts * extra) return;
    since_doubts_ = Duration{0};
    doubts_left_ = k_doubts;
  }
  --doubts_left_;
  depths[static_cast<size_t>(found - sequences.begin())] += added;
}

bool DraftControl::could_pay(std::span<const DecodingSequence> sequences, uint32_t rows_max) {
  if (is_off()) return false;
  if (options_.fixed_depth) return true;
  candidates_.clear();
  for (const DecodingSequence& sequence : sequences) {
    candidates_.push_back({sequence.context, std::span(k_certain).first(
                                                 std::min(sequence.depth_max, k_hint_depth_max))});
  }
  return model::could_pay(candidates_, refresh_.costs(), rows_max, k_gain_min, scratch_);
}

bool DraftControl::is_probe_due(Drafts& drafts) {
  ++unverified_;
  return ++drafts.plain_steps >= k_probe_after && unverified_ >= k_probe_rows;
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

void DraftControl::learn(Drafts& drafts, size_t drawn) {
  drafts.plain_steps = 0;
  for (size_t i = 0; i < std::min(drawn, drafts.path.size()); ++i) {
    const bool came_true = i + 1 < drawn;
    const HintTrie::Step& step = drafts.path[i];
    drafts.acceptance.count(step.source, step.confidence, came_true);
    (drafts.of_tenant ? *drafts.of_tenant : acceptance_)
        .count(step.source, step.confidence, came_true);
  }
}

}  // namespace outrider::model
