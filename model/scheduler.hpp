#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Which rows the next step computes. A pure function of plain views; the engine executes the plan.
///
/// Order: a tenant's own sequences by `priority` (lower first), then `arrival`. Tenants are merged
/// by start tags: what the tenant was served, plus the rows that its earlier sequences lack. So the
/// least served tenant is first, and priority never ranks one tenant before another. Drafts for
/// another engine come before all else: what is late is of no use to it. The rules:
/// 1. Decode rows first (sequences that lack one row; they leave one row to a first in order that
///    prefills), then prefill chunks under what is left of one token budget.
/// 2. Prefill is shared: half of what is left goes, in chunks of at most `chunk_min` rows, to those
///    that lack the fewest rows, so that a short prompt does not wait for a long one; all the rest
///    goes in order, so that the first in order always gets at least half and nobody starves. No
///    chunk has more rows than its view's `rows_max`.
/// 3. When blocks run out, a sequence may take those of parked ones, then of running ones that come
///    after it, last in order first. Their rows are computed again later (preemption by recompute).
/// 4. Waiting sequences are admitted in order, none overtakes another, and only while the blocks of
///    their whole length (and of the chunks still owed to running ones) are free. For a slot or a
///    block they displace parked ones, running ones of their own tenant with strictly lower
///    urgency, and, while their tenant runs nothing, later ones of a tenant that runs more than
///    one.
/// 5. What one sequence computes now, another that wants the same block next waits for: of those
/// that
///    lack the same `next_block` only the first in order gets prefill rows, as many as if it lacked
///    no more than the shortest of them. The others lose neither slot nor place by that; who is
///    first is asked anew in each plan.
/// 6. Hints come last: what is left of the token budget goes, in order, to those that lack one row
///    and have hints of what follows it, as far as blocks are free that nobody is owed. They
///    displace nobody.
/// 7. The first in order among runnable sequences always makes progress if it fits the pool alone,
///    over at most two plans (a shared block is counted as free only once its last holder is gone).
/// 8. What is no draft takes neither a slot nor a block of one, parked or not, and while there is a
///    draft a step prefills few of its rows, so that the next step is soon.
namespace outrider::model {

/// One sequence as the scheduler sees it.
struct SequenceView {
  bool running = false;  ///< Admitted: has a slot and maybe blocks.
  bool parked = false;   ///< Gets no rows, uses no slot.
  bool draft = false;    ///< For another engine.
  uint32_t tenant = 0;   ///< Whose it is; decides between equally served ones, lower first.
  uint64_t served = 0;   ///< Rows that this tenant was served, the same in all its views.
  int32_t priority = 0;
  uint64_t arrival = 0;            ///< Unique.
  uint32_t slots = 1;              ///< Running sequences that it will be (choices that fork later).
  uint32_t rows_max = UINT32_MAX;  ///< Of one step; at least 1.
  uint32_t length = 0;    ///< Tokens known; all of them must be computed to sample the next.
  uint32_t computed = 0;  ///< Waiting: what it would find in the prefix index when admitted.
  uint32_t blocks = 0;    ///< In its table. Waiting: of what it would find, those that others hold.
  uint32_t exclusive_blocks = 0;  ///< Of these, what a preemption frees.
  bool shared_tail = false;       ///< Its next row needs a copy of its last block.
  uint64_t next_block = 0;        ///< Content of the next block that it fills; 0: cannot be shared.
  bool joins = false;             ///< It could take that block instead of computing it.
  uint32_t hints = 0;             ///< Rows behind its known tokens that are worth computing.
};

struct StepBudget {
  uint32_t batch_tokens = 0;  ///< rows
  uint32_t sequences = 0;     ///< slots
  uint32_t blocks_free = 0;
  uint32_t block_tokens = 16;
  uint32_t chunk_min = 32;  ///< rows
  /// Rows of prefill of all that are no drafts, while there is one: a hint that is later than the
  /// target's next step is worth nothing.
  uint32_t prefill_beside_drafts = 16;
};

/// Indices are those of the views.
struct PlannedRows {
  uint32_t sequence = 0;
  uint32_t rows = 0;

  friend bool operator==(const PlannedRows&, const PlannedRows&) = default;
};

struct StepPlan {
  std::vector<uint32_t> preempt;  ///< Free all blocks; back to waiting. Before everything else.
  std::vector<uint32_t> admit;    ///< Waiting ones that get their first rows.
  /// Decode rows with their hints, then prefill chunks; each sequence once.
  std::vector<PlannedRows> rows;
};

StepPlan plan_step(std::span<const SequenceView> sequences, const StepBudget& budget);

}  // namespace outrider::model
