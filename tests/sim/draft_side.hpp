#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/draft_tree.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/messages.hpp"
#include "tests/sim/simulation.hpp"

namespace outrider::sim {

/// The draft: a step whenever there is something to guess, of all requests together. Each step's
/// guesses are pushed when it ends.
class DraftSide {
 public:
  using Send = std::function<void(std::vector<DraftHint>)>;

  DraftSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send);

  void take(const std::vector<DraftCommit>& commits);
  Duration busy() const { return busy_; }

 private:
  struct Run {
    uint32_t request = 0;
    uint32_t rows = 0;
    uint32_t prompt_rows = 0;  ///< Not computed yet.
    std::unique_ptr<DraftTree> tree;
  };

  void begin_step();
  void end_step();

  const Scenario& scenario_;
  const Texts& texts_;
  EventQueue& queue_;
  Send send_;
  std::vector<Run> runs_;  ///< by slot
  bool is_stepping_ = false;
  Duration busy_{};
};

}  // namespace outrider::sim
