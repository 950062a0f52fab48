#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "actors/draft_run.hpp"
#include "base/limits.hpp"

namespace outrider::actors {

/// What a draft is told of its targets. TargetGone: all of its runs may go.
struct TargetGone {
  uint64_t target = 0;
};
/// A heartbeat has passed. Not every end is heard of: a target that is killed is known to a draft
/// through routers only, and what it said on the way may be lost with one of these.
struct DraftBeat {};
using DraftInput = std::variant<schema::DraftOpen, schema::DraftCommits, schema::DraftClose,
                                TargetGone, DraftBeat>;

/// What it answers, each with the key of its run.
struct DraftReplies {
  std::vector<schema::DraftReady> readies;
  std::vector<schema::DraftHint> hints;
  std::vector<schema::DraftResync> resyncs;
  std::vector<schema::DraftClose> closes;
  std::string error;  ///< Why the draft model could not go on, whenever that was so.

  bool empty() const {
    return readies.empty() && hints.empty() && resyncs.empty() && closes.empty() && error.empty();
  }
};

/// All texts that one draft engine runs ahead of. Bounded: who was committed to least recently goes
/// when another wants its place, or after limits::draft_run_beats_max without a word: if its target
/// lives after all, it is told and opens it anew. Whatever a target sends, no more than its own
/// runs suffer. Belongs to the engine's thread.
class DraftRuns {
 public:
  struct Options {
    std::string tokenizer;  ///< Fingerprint.
    uint32_t context_tokens = 0;
    uint32_t runs_max = limits::draft_runs_max;
    /// Rows of a step of its engine that all runs share: each follows so many branches.
    uint32_t rows_max = 1;
  };
  DraftRuns(Stepper& engine, Options options) : engine_(engine), options_(std::move(options)) {}

  /// Its sequences are those of sessions from here on; gateways draw numbers below.
  static constexpr uint64_t k_sessions = uint64_t{1} << 63;
  static bool owns(RequestKey key) { return key.session >= k_sessions; }

  void take(const DraftInput& input);
  /// What a step of the engine gave, `time` is what it took.
  void advance(std::span<const model::ChoiceUpdate> updates, Duration time);
  DraftReplies take_replies() { return std::exchange(replies_, {}); }

  uint32_t size() const { return static_cast<uint32_t>(runs_.size()); }

 private:
  struct Slot {
    std::unique_ptr<DraftRun> run;
    uint64_t used = 0;
    uint64_t heard = 0;  ///< The beat in which its target spoke of it last.
  };
  using Slots = std::vector<Slot>;

  void open(const schema::DraftOpen& open);
  void commit(const schema::DraftCommit& commit);
  void close(const schema::DraftKey& key);
  template <class Which>
  void forget(Which which);
  Slots::iterator find(const schema::DraftKey& key);
  void steer(Slots::iterator slot);
  uint32_t rows() const;
  void end(Slots::iterator slot, schema::DraftEnd reason);

  Stepper& engine_;
  Options options_;
  Slots runs_;
  uint64_t uses_ = 0;
  uint64_t beats_ = 0;
  uint64_t last_session_ = k_sessions;
  Duration own_step_{0};  ///< Of late.
  DraftReplies replies_;
  std::vector<uint64_t> grown_;  // Work space.
};

}  // namespace outrider::actors
