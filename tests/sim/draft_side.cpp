#include "tests/sim/draft_side.hpp"

#include <utility>

namespace outrider::sim {

DraftSide::DraftSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send)
    : scenario_(scenario),
      texts_(texts),
      queue_(queue),
      send_(std::move(send)),
      runs_(scenario.batch) {}

void DraftSide::take(const std::vector<DraftCommit>& commits) {
  for (const DraftCommit& commit : commits) {
    Run& run = runs_[commit.slot];
    run.rows = commit.rows;
    if (run.request == commit.request) {
      run.tree->commit(commit.tokens);
      continue;
    }
    const auto length = static_cast<uint32_t>(commit.tokens.size());
    run.request = commit.request;
    run.prompt_rows = length;
    run.tree = std::make_unique<DraftTree>(texts_, commit.request, length,
                                           model::text_hash(model::k_empty_text, commit.tokens));
  }
  if (!is_stepping_) begin_step();
}

void DraftSide::begin_step() {
  uint32_t rows = 0;
  for (Run& run : runs_) {
    // The last row of a prompt is the first that guesses.
    const uint32_t guessing = run.tree->begin_step(run.prompt_rows > 0 ? 1 : run.rows);
    rows += guessing + (run.prompt_rows > 0 ? run.prompt_rows - 1 : 0);
    run.prompt_rows = 0;
  }
  is_stepping_ = rows > 0;
  if (!is_stepping_) return;
  const Duration time = scenario_.draft.step(rows);
  busy_ += time;
  queue_.after(time, [this] { end_step(); });
}

void DraftSide::end_step() {
  std::vector<DraftHint> hints;
  for (size_t slot = 0; slot < runs_.size(); ++slot) {
    const Run& run = runs_[slot];
    run.tree->end_step();
    DraftHint hint{.slot = static_cast<uint32_t>(slot),
                   .request = run.request,
                   .base_length = run.tree->length(),
                   .base_hash = run.tree->hash(),
                   .branches = run.tree->take_news()};
    if (!hint.branches.empty()) hints.push_back(std::move(hint));
  }
  send_(std::move(hints));
  begin_step();
}

}  // namespace outrider::sim
