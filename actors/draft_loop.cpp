#include "actors/draft_loop.hpp"

#include <atomic>
#include <utility>

#include "base/limits.hpp"

namespace outrider::actors {

/// To its loop an engine for requests, whose steps also take in what targets said and send out
/// hints.
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

  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted) override {
    if (DraftRuns::owns(key)) {
      return fail(ErrorCode::invalid_argument, "this session number is kept for drafts");
    }
    return engine_->submit(key, std::move(request), submitted);
  }
  void cancel(RequestKey key) override {
    if (!DraftRuns::owns(key)) engine_->cancel(key);
  }
  void set_parked(RequestKey key, bool parked) override {
    if (!DraftRuns::owns(key)) engine_->set_parked(key, parked);
  }
  // Drafts only do so, and nobody drafts for it.
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
    drafted_.clear();
    answered_.clear();
    for (const model::ChoiceUpdate& update : engine_->step()) {
      (DraftRuns::owns(update.key) ? drafted_ : answered_).push_back(update);
    }
    runs_.advance(drafted_, clock_.now() - start);
    size_ = runs_.size();
    if (DraftReplies replies = runs_.take_replies(); !replies.empty()) {
      listener_(std::move(replies));
    }
    return answered_;
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
  // Of the loop's thread.
  std::vector<DraftInput> taken_;
  std::vector<model::ChoiceUpdate> drafted_;
  std::vector<model::ChoiceUpdate> answered_;
  std::function<void()> wake_;
};

DraftLoop::DraftLoop(std::unique_ptr<Stepper> engine, DraftRuns::Options options,
                     const Clock& clock) {
  const auto tell_drafts = [this](DraftReplies replies) {
    const std::lock_guard lock(mutex_);
    if (drafts_) drafts_(std::move(replies));
  };
  const auto tell_answers = [this](EngineEvents events) {
    const std::lock_guard lock(mutex_);
    if (answers_) answers_(std::move(events));
  };
  auto drafter =
      std::make_unique<Drafter>(std::move(engine), std::move(options), tell_drafts, clock);
  drafter_ = drafter.get();
  loop_ = std::make_unique<EngineLoop>(std::move(drafter), tell_answers, clock);
}

DraftLoop::~DraftLoop() = default;

void DraftLoop::report_drafts_to(DraftListener listener) {
  const std::lock_guard lock(mutex_);
  drafts_ = std::move(listener);
}

void DraftLoop::report_answers_to(EngineListener listener) {
  const std::lock_guard lock(mutex_);
  answers_ = std::move(listener);
}

uint32_t DraftLoop::runs() const {
  return drafter_->size();
}

void DraftLoop::give(DraftInput input) {
  drafter_->give(std::move(input));
}

}  // namespace outrider::actors
