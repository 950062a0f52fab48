#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "actors/engine_port.hpp"
#include "schema/draft_messages.hpp"

namespace outrider::actors {

/// One text that a draft model runs ahead of: what its target has committed, and what the draft's
/// engine expects behind it. An ordinary sequence of that engine, which shares blocks with others
/// and goes another way when the target does. It never waits for the target: when it is far enough
/// ahead it rests until the next commit. Pure but for the engine; belongs to the engine's thread.
class DraftRun {
 public:
  /// `engine_key` is what its engine knows it by, and used by no other.
  DraftRun(const schema::DraftOpen& open, RequestKey engine_key, uint32_t context_tokens);

  const schema::DraftKey& key() const { return key_; }
  RequestKey engine_key() const { return engine_key_; }
  /// Committed tokens that it has.
  uint32_t length() const { return static_cast<uint32_t>(text_.size()); }
  /// Tokens beyond them that it expects.
  uint32_t lead() const { return static_cast<uint32_t>(ahead_.size()); }

  enum class Taken : uint8_t { yes, gap, contradiction };
  Taken take(const schema::DraftCommit& commit);
  /// Tells the engine what has changed. False: it cannot go on.
  bool steer(Stepper& engine, Duration own_step);
  /// The engine went on by these tokens.
  void advance(const model::ChoiceUpdate& update);
  /// All that it expects.
  schema::DraftHint hint() const;
  void stop(Stepper& engine) const;

 private:
  struct Expected {
    int32_t token = 0;
    uint8_t confidence = 0;
  };
  uint32_t lead_max(Duration own_step) const;
  bool is_far_enough(Duration own_step) const;
  bool submit(Stepper& engine);

  schema::DraftKey key_;
  RequestKey engine_key_;
  GenerationRequest request_;
  uint32_t prompt_tokens_;
  uint32_t context_tokens_;
  std::vector<int32_t> text_;  ///< Prompt and output, as far as committed.
  uint64_t hash_;              ///< Of text_.
  std::deque<Expected> ahead_;
  uint32_t depth_ = 0;
  uint64_t target_step_ns_ = 0;
  bool submitted_ = false;
  bool diverged_ = false;  ///< The engine's output is no longer text_ and ahead_.
  bool parked_ = false;
};

}  // namespace outrider::actors
