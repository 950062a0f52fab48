#include "actors/draft_loop.hpp"

#include <atomic>
#include <utility>

#include "base/limits.hpp"

namespace outrider::actors {

/// To its loop an engine without output: each step takes in what targets said and sends out hints.
class DraftLoop::Drafter final : public Stepper {
 public:
  Drafter(std::unique_ptr<Stepper> engine, DraftRuns::Options options, DraftListener listener,
          const Clock& clock)
      : engine_(std::move(engine)),
        runs_(*engine_, std::move(options)),
        listener_(std::move(listener)),
        clock_(clock) {}

  void give(DraftInput input) {
    std::function<void()> wake;
    {
      const std::lock_guard lock(mutex_);
      if (inbox_.size() >= limits::draft_inbox_max) return;
      inbox_.push_back(std::move(input));
      wake = wake_;
    }
    if (wake) wake();
  }

  uint32_t size() const { return size_; }

  // No requests of its own.
  Result<void> submit(RequestKey, GenerationRequest, TimePoint) override {
    return fail(ErrorCode::unavailable, "a draft engine serves drafts only");
  }
  void cancel(RequestKey) override {}
  void set_parked(RequestKey, bool) override {}
  bool redirect(RequestKey, std::span<const int32_t>) override { return false; }
  bool fork(RequestKey, RequestKey, std::span<const int32_t>) override { return false; }
  void hint(RequestKey, uint32_t, const model::Hint&) override {}

  bool idle() const override {
    const std::lock_guard lock(mutex_);
    return inbox_.empty() && engine_->idle();
  }
  void on_arrival(std::function<void()> wake) override {
    engine_->on_arrival(wake);
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  std::span<const model::ChoiceUpdate> step() override {
    taken_.clear();
    {
      const std::lock_guard lock(mutex_);
      taken_.swap(inbox_);
    }
    for (const DraftInput& input : taken_) runs_.take(input);
    const TimePoint start = clock_.now();
    const auto updates = engine_->step();
    runs_.advance(updates, clock_.now() - start);
    size_ = runs_.size();
    if (DraftReplies replies = runs_.take_replies(); !replies.empty()) {
      listener_(std::move(replies));
    }
    return {};
  }
  model::CacheReset forget_cached(const std::optional<std::string>& tenant) override {
    return engine_->forget_cached(tenant);
  }
  model::EngineStats stats() const override { return engine_->stats(); }
  void check_conservation() const override { engine_->check_conservation(); }

 private:
  const std::unique_ptr<Stepper> engine_;
  DraftRuns runs_;
  std::atomic<uint32_t> size_ = 0;  ///< Of runs_.
  const DraftListener listener_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::vector<DraftInput> inbox_;
  std::vector<DraftInput> taken_;  ///< Of the loop's thread.
  std::function<void()> wake_;
};

DraftLoop::DraftLoop(std::unique_ptr<Stepper> engine, DraftRuns::Options options,
                     DraftListener listener, const Clock& clock) {
  auto drafter =
      std::make_unique<Drafter>(std::move(engine), std::move(options), std::move(listener), clock);
  drafter_ = drafter.get();
  loop_ = std::make_unique<EngineLoop>(
      std::move(drafter), [](EngineEvents) {}, clock);
}

DraftLoop::~DraftLoop() = default;

uint32_t DraftLoop::runs() const {
  return drafter_->size();
}

void DraftLoop::give(DraftInput input) {
  drafter_->give(std::move(input));
}

}  // namespace outrider::actors
