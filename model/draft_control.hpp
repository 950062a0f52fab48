#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/acceptance.hpp"
#include "model/cost_refresh.hpp"
#include "model/draft_depth.hpp"
#include "model/hint_trie.hpp"
#include "model/ngram_index.hpp"
#include "model/speculation_options.hpp"

namespace outrider::model {

/// How hints of all requests of a tenant fare: a window of 500 or so.
inline constexpr float k_all_decay = 0.998f;

/// What is hinted at for one sequence that decodes, and how its hints fare. Of each source the most
/// confident hint counts, and the one that is believed most, whether or not it was verified, when
/// all that it follows is committed and the next token is.
struct Drafts {
  Drafts(uint32_t length, uint64_t hash,
         std::shared_ptr<Acceptance> of_all = std::make_shared<Acceptance>(k_all_decay))
      : of_tenant(std::move(of_all)), trie(length, hash) {}

  void commit(int32_t id);
  /// Drafts from the text itself are wanted, until it is forgotten: most of the memory.
  void index_own_text(std::span<const int32_t> prompt, std::span<const int32_t> output);
  void forget_own_text();
  /// Probability that such a hint comes true if those before it do.
  float believed(HintSource source, uint8_t confidence) const;

  std::shared_ptr<Acceptance> of_tenant;  ///< What its other requests show; never null.
  bool by_rejection = false;              ///< How hints are verified that were drawn.
  HintTrie trie;
  bool indexes_own_text = false;
  NgramIndex own_text;               ///< The prompt's end, and the output.
  Acceptance acceptance{0.95f};      ///< A window of 20 or so.
  std::vector<HintTrie::Step> path;  ///< The best one in this step, cut to what is verified.
  std::vector<float> survival;
  uint32_t wanted = 0;  ///< Hints before the first one that comes true too rarely.
};

/// A sequence that decodes in a step. Its drafts are null where it must not speculate, and have an
/// empty path where nothing is hinted at.
struct DecodingSequence {
  uint32_t context = 0;  ///< tokens behind its row
  Drafts* drafts = nullptr;
  uint32_t depth_max = 0;  ///< Hints that it may take, whether there are any or not.
};

/// Prompts of which a step computes rows beside what decodes.
struct PromptRows {
  uint32_t sequences = 0;
  uint32_t rows = 0;
};

/// How many hints a step verifies: find_path of each sequence, choose, run the step, learn and
/// observe. Knows no engine and no clock, so a simulator runs the same one.
class DraftControl {
 public:
  explicit DraftControl(const SpeculationOptions& options) : options_(options) {}

  void set_costs(const StepCosts& measured) { refresh_ = CostRefresh(measured); }
  /// As rows cost next to each other now; empty: not measured.
  const StepCosts& costs() const { return refresh_.costs(); }
  /// Without costs, only fixed depths draft.
  bool is_off() const {
    return options_.depth_max == 0 || (!options_.fixed_depth && refresh_.costs().rows.empty());
  }

  /// Takes the best path of at most `depth` hints into the drafts, and how far each is believed: as
  /// such claims of its source came true so far, so that who lies hides nobody.
  /// Where drawn ones are verified by rejection they come first, and are believed as their source
  /// is: whether one is verified must not depend on what was drawn.
  void find_path(Drafts& drafts, uint32_t depth) const;
  /// One depth for each sequence, none beyond its path. What pays is at most `rows_max` in all;
  /// fixed depths are as they are, and the scheduler cuts what has no room.
  void choose(std::span<const DecodingSequence> sequences, const PromptRows& beside,
              uint32_t rows_max, std::vector<uint32_t>& depths);
  /// Whether hints would be verified in a step of these if there were as many as may be taken, and
  /// each certain, by what rows cost or by what may be hoped. If not, whoever drafts works for
  /// nothing.
  bool could_pay(std::span<const DecodingSequence> sequences, const PromptRows& beside,
                 uint32_t rows_max);
  /// How hints of a tenant's requests fare: one tenant's are no evidence for another's.
  std::shared_ptr<Acceptance> acceptance_of(uint64_t tenant);
  /// A row with hints behind it gave `drawn` tokens: all but the last are hints that came true.
  void learn(size_t drawn) { came_true_ += static_cast<uint32_t>(drawn > 0 ? drawn - 1 : 0); }
  /// A step of these sequences, each row sampled, took `time`.
  void observe(std::span<const StepShare> shares, Duration time);
  /// One with other rows beside took it: that tells nothing of what hints cost.
  void pass(Duration time);
  /// Steps for which hints were chosen that do not pay by what is known.
  uint64_t explored_steps() const { return explored_steps_; }

 private:
  StepBeside beside(const PromptRows& prompts) const;
  bool is_plain_step_due(uint32_t sequences, const PromptRows& beside);
  void try_what_is_hoped(const StepBeside& beside, uint32_t rows_max,
                         std::vector<uint32_t>& depths);
  void charge_try(std::span<const StepShare> shares, Duration time);

  SpeculationOptions options_;
  CostRefresh refresh_;  ///< Step costs as steps are now.
  std::unordered_map<uint64_t, std::shared_ptr<Acceptance>> of_tenants_;
  double to_explore_ns_ = 0;  ///< What may be lost to find out more.
  uint32_t steps_ = 0;
  uint32_t tries_left_ = 0;
  double tried_ns_ = 0;        ///< More than without, by what is known; 0: this step is no try.
  bool was_try_ = false;       ///< The step before.
  uint32_t hinted_steps_ = 0;  ///< Observed in a row.
  uint32_t hinted_rows_ = 0;   ///< Of the last one.
  uint32_t came_true_ = 0;     ///< Hints, since the last step.
  double hints_true_ = 0;      ///< Of a sequence in a hinted step, on average of late.
  uint64_t explored_steps_ = 0;
  std::vector<DraftCandidate> candidates_;  // Work space.
  std::vector<uint32_t> hoped_depths_;
  DepthScratch scratch_;
};

}  // namespace outrider::model
