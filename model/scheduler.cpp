#include "model/scheduler.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.hpp"

namespace outrider::model {
namespace {

constexpr uint32_t k_none = UINT32_MAX;

class Planner {
 public:
  Planner(std::span<const SequenceView> views, const StepBudget& budget)
      : views_(views),
        budget_(budget),
        states_(views.size()),
        tokens_(budget.batch_tokens),
        blocks_(budget.blocks_free) {
    for (uint32_t i = 0; i < views.size(); ++i) {
      states_[i].running = views[i].running;
      order_.push_back(i);
    }
    tag();
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return before(a, b); });
    std::erase_if(order_, [&](uint32_t s) { return views_[s].parked || pending(s) == 0; });
  }

  StepPlan run() {
    find_active();
    const auto first =
        std::find_if(order_.begin(), order_.end(), [&](uint32_t s) { return states_[s].active; });
    const uint32_t owed_first = first != order_.end() && pending(*first) > 1 ? 1 : 0;
    for (const uint32_t s : order_) {
      if (states_[s].active && pending(s) == 1 && tokens_ > owed_first) grant(s, 1, true);
    }
    admit_waiting();
    share_prefill();
    grant_hints();
    return collect();
  }

 private:
  struct State {
    bool running = false;
    bool active = false;    ///< May get rows in this step.
    bool admitted = false;  ///< By this plan.
    bool preempted = false;
    bool deferred = false;  ///< Another one computes what it needs next.
    bool leads = false;     ///< First of its tenant among the active ones.
    uint64_t tag = 0;       ///< Rows: where it stands between the tenants.
    uint32_t rows = 0;
    uint32_t blocks = 0;             ///< Taken for the rows.
    uint32_t unshared = 0;           ///< Blocks that it counts on others to hold, and they may not.
    uint32_t shortest = UINT32_MAX;  ///< Rows that the shortest of those that wait for it lack.
  };

  bool before(uint32_t a, uint32_t b) const {
    const auto key = [&](uint32_t s) {
      const SequenceView& v = views_[s];
      return std::tuple(!v.draft, states_[s].tag, v.tenant, v.priority, v.arrival);
    };
    return key(a) < key(b);
  }
  /// A tenant's drafts, or all else of it: these compete with their like only.
  using Group = std::pair<bool, uint32_t>;
  Group group(uint32_t s) const { return {views_[s].draft, views_[s].tenant}; }

  /// Start tags: the rows that a tenant will have been served when it is this one's turn.
  void tag() {
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      const auto key = [&](uint32_t s) {
        return std::tuple(group(s), views_[s].priority, views_[s].arrival);
      };
      return key(a) < key(b);
    });
    uint64_t ahead = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      const SequenceView& v = views_[order_[i]];
      if (i == 0 || group(order_[i - 1]) != group(order_[i])) ahead = 0;
      states_[order_[i]].tag = v.served + ahead;
      if (!v.parked) ahead += pending(order_[i]);
    }
  }
  uint32_t slots(uint32_t s) const { return std::min(views_[s].slots, budget_.sequences); }
  uint32_t pending(uint32_t s) const { return views_[s].length - views_[s].computed; }
  uint32_t ceil_blocks(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + budget_.block_tokens - 1) / budget_.block_tokens);
  }
  /// Blocks to take for rows computed … computed + rows - 1.
  uint32_t blocks_for(uint32_t s, uint32_t rows) const {
    const SequenceView& v = views_[s];
    return rows == 0 ? 0 : ceil_blocks(uint64_t{v.computed} + rows) - v.blocks + copies(s);
  }
  uint32_t copies(uint32_t s) const {
    return states_[s].unshared + (views_[s].shared_tail ? 1 : 0);
  }

  /// Running sequences in order while slots last; unparking may have brought too many.
  void find_active() {
    for (const uint32_t s : order_) {
      if (!views_[s].running || slots_used_ + slots(s) > budget_.sequences) continue;
      slots_used_ += slots(s);
      states_[s].active = true;
      states_[s].leads = running_[group(s)]++ == 0;
    }
  }

  /// Who gives way to `s`: what is no draft, a parked sequence (last in order first), else the last
  /// running one that comes after it, of those that it may displace.
  uint32_t find_victim(uint32_t s, bool for_blocks) const {
    const auto worth = [&](uint32_t v) { return std::pair(views_[v].draft, !views_[v].parked); };
    uint32_t best = k_none;
    for (uint32_t v = 0; v < views_.size(); ++v) {
      if (v == s || !states_[v].running || states_[v].admitted) continue;
      if (for_blocks ? views_[v].blocks + states_[v].blocks == 0 : !states_[v].active) continue;
      if (!may_displace(s, v)) continue;
      if (best == k_none || worth(v) < worth(best) ||
          (worth(v) == worth(best) && before(best, v))) {
        best = v;
      }
    }
    return best;
  }
  bool may_displace(uint32_t s, uint32_t v) const {
    if (views_[s].draft != views_[v].draft) return views_[s].draft;
    if (views_[v].parked) return true;
    if (views_[s].running) return before(s, v);
    if (views_[s].tenant == views_[v].tenant) return views_[s].priority < views_[v].priority;
    const auto own = running_.find(group(s));
    return (own == running_.end() || own->second == 0) && !states_[v].leads && before(s, v);
  }

  void preempt(uint32_t v) {
    State& state = states_[v];
    if (state.active) {
      slots_used_ -= slots(v);
      --running_[group(v)];
    }
    tokens_ += state.rows;
    // Some of its blocks may be those that admitted ones count on it to hold.
    const uint32_t kept = std::min(views_[v].exclusive_blocks, shared_);
    shared_ -= kept;
    freed_ += views_[v].exclusive_blocks;
    blocks_ += state.blocks + views_[v].exclusive_blocks - kept;
    state = {.preempted = true, .tag = state.tag};
  }

  /// Up to `rows` more rows for `s`, as many as tokens and blocks allow.
  void grant(uint32_t s, uint32_t rows, bool may_preempt) {
    State& state = states_[s];
    rows = std::min({rows, tokens_, std::min(pending(s), views_[s].rows_max) - state.rows});
    if (rows == 0) return;
    while (blocks_for(s, state.rows + rows) - state.blocks > blocks_) {
      const uint32_t victim = may_preempt ? find_victim(s, true) : k_none;
      if (victim == k_none) break;
      preempt(victim);
    }
    rows = std::min(rows, rows_that_fit(s));
    const uint32_t taken = blocks_for(s, state.rows + rows) - state.blocks;
    tokens_ -= rows;
    blocks_ -= rows == 0 ? 0 : taken;
    state.blocks += rows == 0 ? 0 : taken;
    state.rows += rows;
  }
  uint32_t rows_that_fit(uint32_t s) const {
    const SequenceView& v = views_[s];
    const uint64_t blocks = uint64_t{v.blocks} + states_[s].blocks + blocks_;
    if (blocks < copies(s) + v.blocks) return 0;
    const uint64_t capacity = (blocks - copies(s)) * budget_.block_tokens;
    const uint64_t used = uint64_t{v.computed} + states_[s].rows;
    return capacity <= used ? 0
                            : static_cast<uint32_t>(std::min<uint64_t>(capacity - used, tokens_));
  }

  /// Blocks that active sequences and those admitted so far still lack for their known tokens.
  uint32_t owed_blocks() const {
    uint32_t owed = 0;
    for (uint32_t s = 0; s < views_.size(); ++s) {
      if (!states_[s].active && !states_[s].admitted) continue;
      owed += blocks_for(s, pending(s)) - states_[s].blocks;
    }
    return owed;
  }

  /// In order, so that of those that want the same block the first one leads.
  void admit_waiting() {
    bool open = true;
    for (const uint32_t s : order_) {
      if (views_[s].running) {
        if (states_[s].active && pending(s) > 1) lead_or_defer(s);
        continue;
      }
      if (!open) continue;
      open = tokens_ > 0 && (would_defer(s) ? has_room(s) : make_room(s));
      if (!open) continue;
      states_[s].admitted = true;
      states_[s].unshared = unshared(s);
      shared_ += views_[s].blocks - states_[s].unshared;
      slots_used_ += slots(s);
      ++running_[group(s)];
      lead_or_defer(s);
    }
  }
  bool would_defer(uint32_t s) const {
    return views_[s].joins && leaders_.count(views_[s].next_block) != 0;
  }
  void lead_or_defer(uint32_t s) {
    if (views_[s].next_block == 0) return;
    const auto [at, first] = leaders_.try_emplace(views_[s].next_block, s);
    if (first || !views_[s].joins) return;
    states_[s].deferred = true;
    uint32_t& shortest = states_[at->second].shortest;
    shortest = std::min(shortest, pending(s));
  }

  /// Of the blocks that `s` would share when it is admitted: those that this plan may have freed.
  uint32_t unshared(uint32_t s) const { return std::min(views_[s].blocks, freed_); }
  uint64_t whole_blocks(uint32_t s) const {
    return uint64_t{ceil_blocks(uint64_t{views_[s].length} + 1)} - views_[s].blocks + unshared(s);
  }
  bool has_room(uint32_t s) const {
    return slots_used_ + slots(s) <= budget_.sequences &&
           whole_blocks(s) + owed_blocks() <= blocks_;
  }

  bool make_room(uint32_t s) {
    // Displacing in vain would throw work away: see first whether it can be enough.
    const uint64_t needed = whole_blocks(s) + owed_blocks();
    uint64_t blocks_possible = blocks_;
    uint32_t slots_possible = budget_.sequences - slots_used_;
    for (uint32_t v = 0; v < views_.size(); ++v) {
      if (!states_[v].running || !may_displace(s, v)) continue;
      blocks_possible += views_[v].blocks + states_[v].blocks;
      slots_possible += states_[v].active ? slots(v) : 0;
    }
    if (blocks_possible < needed || slots_possible < slots(s)) return false;
    while (slots_used_ + slots(s) > budget_.sequences) {
      const uint32_t victim = find_victim(s, false);
      if (victim == k_none) return false;
      preempt(victim);
    }
    while (whole_blocks(s) + owed_blocks() > blocks_) {
      const uint32_t victim = find_victim(s, true);
      if (victim == k_none) return false;
      preempt(victim);
    }
    return true;
  }

  void share_prefill() {
    share_prefill(true);
    const bool is_beside = std::any_of(views_.begin(), views_.end(),
                                       [](const SequenceView& view) { return view.draft; });
    const uint32_t most = is_beside ? budget_.prefill_beside_drafts : UINT32_MAX;
    const uint32_t kept = tokens_ - std::min(tokens_, most);
    tokens_ -= kept;
    share_prefill(false);
    tokens_ += kept;
  }
  void share_prefill(bool drafts) {
    std::vector<uint32_t> candidates;
    for (const uint32_t s : order_) {
      const State& state = states_[s];
      if (state.deferred || views_[s].draft != drafts) continue;
      if (state.admitted || (state.active && pending(s) > 1)) candidates.push_back(s);
    }
    if (candidates.size() > 1) {
      std::vector<uint32_t> shortest = candidates;
      const auto lacks = [&](uint32_t i) { return std::min(pending(i), states_[i].shortest); };
      std::stable_sort(shortest.begin(), shortest.end(),
                       [&](uint32_t a, uint32_t b) { return lacks(a) < lacks(b); });
      const uint32_t keep = tokens_ - tokens_ / 2;
      for (const uint32_t s : shortest) {
        grant(s, std::min(budget_.chunk_min, tokens_ - keep), false);
      }
    }
    for (const uint32_t s : candidates) {
      // An earlier candidate may have taken its blocks.
      if (!states_[s].preempted) grant(s, pending(s), views_[s].running);
    }
  }

  void grant_hints() {
    if (tokens_ == 0) return;
    const uint64_t owed = owed_blocks();
    for (const uint32_t s : order_) {
      State& state = states_[s];
      if (!state.active || pending(s) != 1 || state.rows != 1 || views_[s].hints == 0) continue;
      // Of the blocks that nobody is owed: it owns what its last block has left in any case.
      const uint64_t spare = blocks_ > owed ? blocks_ - owed : 0;
      uint32_t rows = std::min({views_[s].hints, tokens_, views_[s].rows_max - 1});
      while (rows > 0 && blocks_for(s, 1 + rows) - state.blocks > spare) --rows;
      const uint32_t taken = blocks_for(s, 1 + rows) - state.blocks;
      tokens_ -= rows;
      blocks_ -= taken;
      state.blocks += taken;
      state.rows += rows;
    }
  }

  StepPlan collect() const {
    StepPlan plan;
    for (uint32_t s = 0; s < views_.size(); ++s) {
      if (states_[s].preempted) plan.preempt.push_back(s);
    }
    for (const bool decode : {true, false}) {
      for (const uint32_t s : order_) {
        const State& state = states_[s];
        if (state.rows == 0 || (state.active && pending(s) == 1) != decode) continue;
        plan.rows.push_back({s, state.rows});
        if (state.admitted) plan.admit.push_back(s);
      }
    }
    return plan;
  }

  std::span<const SequenceView> views_;
  const StepBudget& budget_;
  std::vector<State> states_;
  std::vector<uint32_t> order_;  ///< Sequences that want rows, first in order first.
  uint32_t tokens_;              ///< Left of the budget.
  uint32_t blocks_;
  uint32_t slots_used_ = 0;
  uint32_t shared_ = 0;                   ///< Blocks that admitted ones count on others to hold.
  uint32_t freed_ = 0;                    ///< Blocks that preempted ones held alone.
  std::map<Group, uint32_t> running_;     ///< Active and admitted sequences.
  std::map<uint64_t, uint32_t> leaders_;  ///< By next block: the first in order that wants it.
};

}  // namespace

StepPlan plan_step(std::span<const SequenceView> sequences, const StepBudget& budget) {
  OUTRIDER_CHECK(budget.batch_tokens > 0 && budget.sequences > 0 && budget.block_tokens > 0);
  return Planner(sequences, budget).run();
}

}  // namespace outrider::model
