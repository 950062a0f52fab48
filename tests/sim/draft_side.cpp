#include "tests/sim/draft_side.hpp"

#include <iterator>
#include <limits>
#include <utility>

#include "tests/sim/target_side.hpp"

namespace outrider::sim {

DraftSide::DraftSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send)
    : scenario_(scenario),
      queue_(queue),
      send_(std::move(send)),
      engine_(texts),
      runs_(engine_, {.tokenizer = k_tokenizer,
                      .context_tokens = std::numeric_limits<uint32_t>::max(),
                      .runs_max = 2 * scenario.batch,
                      .rows_max = scenario.rows}) {}

void DraftSide::take(std::vector<actors::DraftInput> inputs) {
  std::move(inputs.begin(), inputs.end(), std::back_inserter(inbox_));
  if (!is_stepping_) begin_step();
}

void DraftSide::reply() {
  if (actors::DraftReplies replies = runs_.take_replies(); !replies.empty()) {
    send_(std::move(replies));
  }
}

void DraftSide::begin_step() {
  for (const actors::DraftInput& input : std::exchange(inbox_, {})) runs_.take(input);
  reply();
  const uint32_t rows = engine_.rows();
  is_stepping_ = rows > 0;
  if (!is_stepping_) return;
  const Duration time = scenario_.draft.step(rows);
  busy_ += time;
  queue_.after(time, [this, time] {
    runs_.advance(engine_.step(), time);
    reply();
    begin_step();
  });
}

}  // namespace outrider::sim
