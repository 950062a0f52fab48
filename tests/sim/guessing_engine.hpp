#pragma once

#include <map>
#include <vector>

#include "actors/engine_port.hpp"
#include "tests/sim/texts.hpp"

namespace outrider::sim {

/// A draft model's engine without a model: what Texts lets it guess, one token for each sequence
/// and step. A request's seed says which text it is. What a step takes is its caller's to know.
class GuessingEngine final : public actors::Stepper {
 public:
  explicit GuessingEngine(const Texts& texts) : texts_(texts) {}

  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted) override;
  void cancel(RequestKey key) override { sequences_.erase(key); }
  void set_parked(RequestKey key, bool parked) override { sequences_.at(key).parked = parked; }
  bool redirect(RequestKey key, std::span<const int32_t> output) override;
  bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) override;
  void hint(RequestKey, uint32_t, const model::Hint&) override {}
  bool idle() const override { return sequences_.empty(); }
  void on_arrival(std::function<void()>) override {}
  std::span<const model::ChoiceUpdate> step() override;
  model::CacheReset forget_cached(const std::optional<std::string>&) override { return {}; }
  model::EngineStats stats() const override { return {}; }
  void check_conservation() const override {}

  /// Of the next step: a new sequence computes its prompt.
  uint32_t rows() const;

 private:
  struct Sequence {
    uint32_t text = 0;
    uint32_t prompt_tokens = 0;
    uint32_t prompt_rows = 0;  ///< Not computed yet.
    bool parked = false;
    std::vector<int32_t> output;
    uint32_t right = 0;  ///< Leading tokens of the output that the text goes on with.

    uint32_t length() const { return prompt_tokens + static_cast<uint32_t>(output.size()); }
  };
  void set_output(Sequence& sequence, std::span<const int32_t> output) const;
  void guess(Sequence& sequence, model::ChoiceUpdate& update) const;

  const Texts& texts_;
  std::map<RequestKey, Sequence> sequences_;
  std::vector<model::ChoiceUpdate> updates_;
};

}  // namespace outrider::sim
