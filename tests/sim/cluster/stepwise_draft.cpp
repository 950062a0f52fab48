#include "tests/sim/cluster/stepwise_draft.hpp"

#include <chrono>
#include <utility>

#include "base/limits.hpp"

namespace outrider::sim::cluster {

class StepwiseDraft::Port final : public actors::DraftPort {
 public:
  explicit Port(std::shared_ptr<StepwiseDraft> draft) : draft_(std::move(draft)) {}
  ~Port() override {
    draft_->listener_ = nullptr;
    draft_->inbox_.clear();
  }

  void give(actors::DraftInput input) override {
    if (draft_->inbox_.size() >= limits::draft_inbox_max) return;
    draft_->inbox_.push_back(std::move(input));
    draft_->wake_();
  }
  actors::EngineSnapshot snapshot() const override { return {draft_->engine_.stats(), 0, 1000}; }
  uint32_t runs() const override { return draft_->runs(); }

 private:
  std::shared_ptr<StepwiseDraft> draft_;
};

std::unique_ptr<actors::DraftPort> StepwiseDraft::open(const std::shared_ptr<StepwiseDraft>& self,
                                                       actors::DraftListener listener) {
  listener_ = std::move(listener);
  return std::make_unique<Port>(self);
}

void StepwiseDraft::step() {
  if (!listener_) return;
  for (const actors::DraftInput& input : std::exchange(inbox_, {})) runs_.take(input);
  runs_.advance(engine_.step(), std::chrono::milliseconds(5));
  if (auto replies = runs_.take_replies(); !replies.empty()) listener_(std::move(replies));
}

}  // namespace outrider::sim::cluster
