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
  /// Beyond limits::draft_inbox_max it is dropped: what follows shows the gap.
  virtual void give(DraftInput input) = 0;
  virtual EngineSnapshot snapshot() const = 0;
  /// Texts that it drafts for.
  virtual uint32_t runs() const = 0;
};

/// Called with replies that are not empty, on the engine's thread; it must not block.
using DraftListener = std::function<void(DraftReplies)>;

/// Makes the draft engine that reports to `listener`; it stops when it is destroyed.
using DraftFactory = std::function<std::unique_ptr<DraftPort>(DraftListener listener)>;

/// A draft model's engine on its own thread: what targets committed in, hints out.
class DraftLoop final : public DraftPort {
 public:
  DraftLoop(std::unique_ptr<Stepper> engine, DraftRuns::Options options, DraftListener listener,
            const Clock& clock);
  ~DraftLoop() override;

  void give(DraftInput input) override;
  EngineSnapshot snapshot() const override { return loop_->snapshot(); }
  uint32_t runs() const override;
  /// A tenant's cached blocks, as EngineLoop does.
  void forget_cached(std::optional<std::string> tenant) {
    loop_->forget_cached(std::move(tenant), [](const model::CacheReset&) {});
  }
  /// Blocks until nothing is left to do: all runs are closed, or none has a text yet.
  void wait_idle() { loop_->wait_idle(); }

 private:
  class Drafter;
  Drafter* drafter_;  ///< The loop's.
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace outrider::actors
