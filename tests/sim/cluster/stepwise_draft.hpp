#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "actors/draft_engine.test.hpp"
#include "actors/draft_loop.hpp"

namespace outrider::sim::cluster {

/// A draft's engine: the real runs over a scripted model, whose guesses never come true. What
/// targets said waits for its next step.
class StepwiseDraft {
 public:
  /// `wake` is called when there is something to do.
  StepwiseDraft(actors::DraftRuns::Options options, std::function<void()> wake)
      : runs_(engine_, std::move(options)), wake_(std::move(wake)) {}

  /// Its port, once: with it the engine stops.
  std::unique_ptr<actors::DraftPort> open(const std::shared_ptr<StepwiseDraft>& self,
                                          actors::DraftListener listener);
  void step();
  bool idle() const { return inbox_.empty() && engine_.stats().running == 0; }
  uint32_t runs() const { return runs_.size(); }

 private:
  class Port;
  actors::ScriptedDraft engine_;
  actors::DraftRuns runs_;
  std::function<void()> wake_;
  actors::DraftListener listener_;
  std::vector<actors::DraftInput> inbox_;
};

}  // namespace outrider::sim::cluster
