#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/request.hpp"
#include "base/result.hpp"
#include "model/engine.hpp"

namespace outrider::actors {

/// One thread's view of an engine: what EngineLoop drives. Production: model::Engine.
class Stepper {
 public:
  virtual ~Stepper() = default;
  /// Its times and its deadline count from `submitted` on.
  virtual Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted) = 0;
  virtual void cancel(RequestKey key) = 0;
  virtual void set_parked(RequestKey key, bool parked) = 0;
  virtual bool redirect(RequestKey key, std::span<const int32_t> output) = 0;
  virtual bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) = 0;
  virtual void hint(RequestKey key, uint32_t choice, const model::Hint& hint) = 0;
  virtual bool idle() const = 0;
  /// `wake` is called on any thread when a step has something to do that was not asked for here.
  virtual void on_arrival(std::function<void()> wake) = 0;
  virtual std::span<const model::ChoiceUpdate> step() = 0;
  virtual model::CacheReset forget_cached(const std::optional<std::string>& tenant) = 0;
  /// None unless it has a cache.
  virtual std::vector<model::CachedBlock> read_cached(const model::CachedQuery&) { return {}; }
  virtual model::EngineStats stats() const = 0;
  /// Aborts if memory was lost. Called each time that nothing is left to do.
  virtual void check_conservation() const = 0;
};

std::unique_ptr<Stepper> make_stepper(std::unique_ptr<model::Engine> engine);

/// What a step was, for those who decide by its time.
struct StepReport {
  uint32_t sequences = 0;  ///< That got tokens.
  uint32_t tokens = 0;
  bool decodes_only = false;     ///< No row of a prompt.
  Duration time{0};              ///< From the end of the step before, if the engine was busy.
  bool hints_could_pay = false;  ///< Had there been enough of them, all certain.
};

/// What happened since the last publish, in order: first what was taken in or refused, then what
/// the step did.
struct EngineEvents {
  std::vector<RequestKey> accepted;
  std::vector<std::pair<RequestKey, Error>> rejected;
  std::vector<model::ChoiceUpdate> updates;
  StepReport step;

  bool empty() const { return accepted.empty() && rejected.empty() && updates.empty(); }
};

/// A hint on its way to an engine.
struct DraftedHint {
  RequestKey key;
  uint32_t choice = 0;
  uint32_t base_length = 0;
  uint64_t base_hash = 0;
  std::vector<model::HintBranch> branches;
};

struct EngineSnapshot {
  model::EngineStats stats;
  uint32_t inbox = 0;       ///< Choices that the engine has not looked at yet.
  uint32_t rows_per_s = 0;  ///< Recent speed while busy; 0: not measured yet.
  TimePoint step_began{0};  ///< Of the step that it is in; 0: in none.
};

/// What a target actor may ask of its engine. Thread-safe; no call waits for a step.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  /// `overloaded` when the inbox is full. The engine's own verdict comes as an event.
  virtual Result<void> submit(RequestKey key, GenerationRequest request) = 0;
  virtual void cancel(RequestKey key) = 0;
  virtual void set_parked(RequestKey key, bool parked) = 0;
  /// For the next step, which does not wait for them. Beyond limits::hint_branches_waiting_max they
  /// are dropped and counted.
  virtual void hint(std::vector<DraftedHint> hints) = 0;
  /// Counts hints that were not even looked at.
  virtual void count_hints(HintOutcome outcome, uint64_t count) = 0;
  virtual EngineSnapshot snapshot() const = 0;
  /// Some of the next blocks that are cached, none if the first is not: between two steps, on the
  /// engine's thread; `done` must not block. An engine that stops first drops it uncalled.
  using CachedDone = std::function<void(std::vector<model::CachedBlock>)>;
  virtual void read_cached(model::CachedQuery query, CachedDone done) = 0;
};

/// Called with each non-empty batch of events. EngineLoop calls it on the engine's thread; it must
/// not block.
using EngineListener = std::function<void(EngineEvents)>;

/// Makes the engine that reports to `listener`; it stops when nobody holds it any more.
using EngineFactory = std::function<std::shared_ptr<EnginePort>(EngineListener listener)>;

}  // namespace outrider::actors
