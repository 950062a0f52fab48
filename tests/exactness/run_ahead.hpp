#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "actors/draft_feed.hpp"
#include "actors/draft_runs.hpp"
#include "base/philox.hpp"
#include "model/engine.hpp"

namespace outrider::exactness {

/// A draft model for the requests of a scene: the target's feed and the draft's runs as they are in
/// a cluster, and between them messages that are late, lost, repeated, overtaken and, now and then,
/// none at all for a while. Leases move to a draft that has forgotten everything.
class RunAhead {
 public:
  /// `draft` is the model; with a window it errs now and then.
  RunAhead(const std::shared_ptr<const model::LoadedModel>& draft, uint32_t depth,
           uint32_t local_window, uint32_t context_tokens, Random& random, const Clock& clock);

  void submitted(RequestKey key, const GenerationRequest& request);
  /// What the target's engine did in a step.
  void heard(std::span<const model::ChoiceUpdate> updates);
  /// Some time goes by: messages arrive, the draft makes some steps, hints go into `target`.
  void go_on(model::Engine& target);

 private:
  using ToTarget =
      std::variant<schema::DraftReady, schema::DraftHints, schema::DraftResync, schema::DraftClose>;
  void begin_anew();
  void post(actors::FeedOutbox outbox, model::Engine* target);
  template <class Message>
  void post_back(std::vector<Message>& messages);
  /// Takes one of those under way, most often the oldest; it may stay there as well.
  template <class Message>
  Message take(std::vector<Message>& wire);

  std::shared_ptr<const model::LoadedModel> model_;
  uint32_t local_window_;
  uint32_t context_tokens_;
  Random& random_;
  const Clock& clock_;
  actors::DraftFeed feed_;
  std::unique_ptr<actors::Stepper> engine_;
  std::unique_ptr<actors::DraftRuns> runs_;
  std::vector<RequestKey> leased_;
  uint32_t generation_ = 1;
  std::vector<actors::DraftInput> to_draft_;
  std::vector<ToTarget> to_target_;
};

}  // namespace outrider::exactness
