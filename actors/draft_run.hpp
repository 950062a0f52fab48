#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/draft_tree.hpp"
#include "actors/engine_port.hpp"
#include "schema/draft_messages.hpp"

namespace outrider::actors {

/// One text that a draft model runs ahead of: what its target has committed, and the tree of what
/// the draft expects behind it. Each step of the draft's engine follows the most probable leaves,
/// each by a sequence of that engine; sequences share blocks, part where guesses do, and go another
/// way when the target does. It never waits for the target: when it is far enough ahead it rests
/// until the next commit, and where nothing is wanted of it it has no sequence. Pure but for the
/// engine; belongs to the engine's thread.
class DraftRun {
 public:
  /// Its engine knows its sequences by `session` and generations of it, used by no other.
  DraftRun(const schema::DraftOpen& open, uint64_t session, uint32_t context_tokens);

  const schema::DraftKey& key() const { return key_; }
  uint64_t session() const { return session_; }
  /// Committed tokens that it has.
  uint32_t length() const { return static_cast<uint32_t>(text_.size()); }

  enum class Taken : uint8_t { yes, gap, contradiction };
  Taken take(const schema::DraftCommit& commit);
  /// Tells the engine what to compute next: up to `rows` rows of a step. False: it cannot go on.
  bool steer(Stepper& engine, uint32_t rows, Duration own_step);
  /// One of its sequences went on. False: that has ended, and the run with it.
  bool advance(const model::ChoiceUpdate& update);
  /// All that it expects.
  schema::DraftHint hint() const;
  void stop(Stepper& engine) const;

 private:
  /// A sequence of the engine: it computes the row of a leaf next.
  struct Head {
    RequestKey key;
    DraftTree::Id at = 0;
    bool parked = false;
    bool wanted = false;
    /// Where the target went another way: committed tokens that are still its own.
    std::optional<uint32_t> lost = {};
  };
  uint32_t lead_max(Duration own_step) const;
  bool submit(Stepper& engine);
  void rest(Stepper& engine);
  void choose_leaves(uint32_t rows, Duration own_step);
  bool send_to(Stepper& engine, DraftTree::Id leaf, uint32_t rows);
  uint32_t common(const Head& head, DraftTree::Id leaf) const;
  bool lead(Stepper& engine, Head& head, DraftTree::Id leaf);

  schema::DraftKey key_;
  uint64_t session_;
  GenerationRequest request_;
  uint32_t prompt_tokens_;
  uint32_t context_tokens_;
  std::vector<int32_t> text_;  ///< Prompt and output, as far as committed.
  uint64_t hash_;              ///< Of text_.
  DraftTree tree_;
  std::vector<Head> heads_;
  uint32_t begun_ = 0;  ///< Heads of all time.
  uint32_t depth_ = 0;
  uint64_t target_step_ns_ = 0;
  std::vector<DraftTree::Id> leaves_ = {};  // Work space.
  std::vector<int32_t> output_ = {};
  std::vector<DraftGuess> guesses_ = {};
};

}  // namespace outrider::actors
