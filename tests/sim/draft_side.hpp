#pragma once

#include <functional>
#include <vector>

#include "actors/draft_runs.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/guessing_engine.hpp"
#include "tests/sim/simulation.hpp"

namespace outrider::sim {

/// The draft: its runs as they are in a node, over an engine that guesses. A step whenever there is
/// something to guess; what comes meanwhile is looked at when it ends.
class DraftSide {
 public:
  using Send = std::function<void(actors::DraftReplies)>;

  DraftSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send);

  void take(std::vector<actors::DraftInput> inputs);
  Duration busy() const { return busy_; }

 private:
  void begin_step();
  void reply();

  const Scenario& scenario_;
  EventQueue& queue_;
  Send send_;
  GuessingEngine engine_;
  actors::DraftRuns runs_;
  std::vector<actors::DraftInput> inbox_;
  bool is_stepping_ = false;
  Duration busy_{};
};

}  // namespace outrider::sim
