#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/draft_control.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/messages.hpp"
#include "tests/sim/simulation.hpp"
#include "tests/sim/texts.hpp"

namespace outrider::sim {

/// The target: steps without a pause, with the engine's own control of drafts and its tries of
/// hints. Verifies what has come when a step begins, and waits for nothing.
class TargetSide {
 public:
  using Send = std::function<void(std::vector<DraftCommit>)>;

  /// What outlives it comes by reference. `send` takes what each step committed.
  TargetSide(const Scenario& scenario, const Texts& texts, EventQueue& queue, Send send);

  void start();
  void take(const std::vector<DraftHint>& hints);

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

  const Scenario& scenario_;
  const Texts& texts_;
  EventQueue& queue_;
  Send send_;
  model::DraftControl control_;
  std::vector<Request> requests_;
  uint32_t ids_ = 0;
  std::vector<model::DecodingSequence> decoding_;
  std::vector<uint32_t> depths_;
  std::vector<DraftCommit> commits_;

  uint64_t steps_ = 0;
  uint64_t tokens_ = 0;
  uint64_t drafts_ = 0;
  uint64_t draft_tokens_ = 0;
  uint64_t accepted_tokens_ = 0;
};

}  // namespace outrider::sim
