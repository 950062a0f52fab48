#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/draft_runs.hpp"
#include "actors/engine_loop.hpp"

namespace outrider::actors {

/// What a draft actor may ask of its engine. Thread-safe; no call waits for a step.
class DraftPort {
 public:
  virtual ~DraftPort() = default;
  /// Beyond limits::draft_inbox_max it is dropped: what follows shows the gap, and a text whose
  /// close was lost is the first to make room.
  virtual void give(DraftInput input) = 0;
  virtual EngineSnapshot snapshot() const = 0;
  /// Texts that it drafts for.
  virtual uint32_t runs() const = 0;
};

/// Called with replies that are not empty, on the engine's thread; it must not block.
using DraftListener = std::function<void(DraftReplies)>;

/// Makes the draft engine that reports to `listener`; it stops when nobody holds it any more.
using DraftFactory = std::function<std::shared_ptr<DraftPort>(DraftListener listener)>;

/// A draft model's engine on its own thread: what targets committed in, hints out; and, after
/// drafting, requests for the model itself, as any engine answers them.
class DraftLoop final : public DraftPort, public EnginePort {
 public:
  DraftLoop(std::unique_ptr<Stepper> engine, DraftRuns::Options options, const Clock& clock);
  ~DraftLoop() override;

  /// Who hears of hints, and who of requests; each is set before there is anything to hear of.
  void report_drafts_to(DraftListener listener);
  void report_answers_to(EngineListener listener);

  void give(DraftInput input) override;
  uint32_t runs() const override;

  Result<void> submit(RequestKey key, GenerationRequest request) override {
    return loop_->submit(key, std::move(request));
  }
  void cancel(RequestKey key) override { loop_->cancel(key); }
  void set_parked(RequestKey key, bool parked) override { loop_->set_parked(key, parked); }
  void hint(std::vector<DraftedHint> hints) override { loop_->hint(std::move(hints)); }
  void count_hints(HintOutcome outcome, uint64_t count) override {
    loop_->count_hints(outcome, count);
  }

  /// Of drafts and requests together.
  EngineSnapshot snapshot() const override { return loop_->snapshot(); }
  void read_cached(model::CachedQuery query, CachedDone done) override {
    loop_->read_cached(std::move(query), std::move(done));
  }
  /// A tenant's cached blocks, as EngineLoop does.
  void forget_cached(std::optional<std::string> tenant) {
    loop_->forget_cached(std::move(tenant), [](const model::CacheReset&) {});
  }
  /// Blocks until nothing is left to do: all runs are closed, or none has a text yet.
  void wait_idle() { loop_->wait_idle(); }

 private:
  class Drafter;

  std::mutex mutex_;  ///< Of both listeners.
  DraftListener drafts_;
  EngineListener answers_;
  Drafter* drafter_;  ///< The loop's.
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace outrider::actors
