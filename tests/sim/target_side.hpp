#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/draft_feed.hpp"
#include "actors/draft_runs.hpp"
#include "model/draft_control.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/simulation.hpp"
#include "tests/sim/texts.hpp"

namespace outrider::sim {

inline constexpr const char* k_tokenizer = "tokens";

/// The target: steps without a pause, with the engine's own control of drafts and its tries of
/// hints, and the feed of its actor. Verifies what has come when a step begins, and waits for
/// nothing.
class TargetSide {
 public:
  using Send = std::function<void(std::vector<actors::DraftInput>)>;

  /// What outlives it comes by reference. `send` takes what each step has to tell the draft.
  TargetSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send);

  void start();
  void take(const actors::DraftReplies& replies);

  uint64_t tokens() const { return tokens_; }
  Outcome outcome() const;

 private:
  struct Request {
    uint32_t id = 0;
    uint32_t end = 0;  ///< Length at which it is over.
    std::unique_ptr<model::Drafts> drafts;
  };

  void admit(size_t slot, uint32_t output_tokens);
  void begin_step();
  void end_step(Duration time);
  void verify(size_t slot);
  void insert_arrived();
  void post();

  const Scenario& scenario_;
  const Texts& texts_;
  EventQueue& queue_;
  Send send_;
  model::DraftControl control_;
  actors::DraftFeed feed_;
  std::vector<Request> requests_;
  uint32_t ids_ = 0;
  std::vector<model::DecodingSequence> decoding_;
  std::vector<uint32_t> depths_;
  bool hints_could_pay_ = false;  ///< In this step.
  std::vector<model::ChoiceUpdate> updates_;
  std::vector<actors::DraftedHint> arrived_;  ///< Since the step began.

  uint64_t steps_ = 0;
  uint64_t tokens_ = 0;
  uint64_t drafts_ = 0;
  uint64_t draft_tokens_ = 0;
  uint64_t accepted_tokens_ = 0;
};

}  // namespace outrider::sim
