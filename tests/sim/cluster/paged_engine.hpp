#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/engine_port.hpp"
#include "base/clock.hpp"
#include "tests/sim/cluster/answer.hpp"

namespace outrider::sim::cluster {

/// A target's engine without a model: one token for each choice and step, by Answer, and four
/// tokens to a block. Where the prompt's tokens are to be told they come first, in several steps. A
/// choice that finds no block takes those of the last one behind it, which computes again. Nothing
/// guards the pool: whoever frees a block twice gets it twice, and only conserve() tells.
class PagedEngine {
 public:
  struct Options {
    uint32_t blocks = 1u << 12;
    uint32_t choices = 64;  ///< That it takes; beyond them `overloaded`.
    uint64_t twist = 0;     ///< Of another model: it gives other tokens.
    bool frees_twice = false;
  };
  /// `wake` is called when there is something to do.
  PagedEngine(Options options, std::function<void()> wake);

  /// Its port, once: with it the engine stops.
  std::unique_ptr<actors::EnginePort> open(const std::shared_ptr<PagedEngine>& self,
                                           actors::EngineListener listener);
  void step();
  bool idle() const { return requests_.empty(); }
  bool stopped() const { return !listener_; }
  /// It is in a step, and still in it when it should have ended.
  void hang_in_step(TimePoint now) {
    if (step_began_ == TimePoint{0}) step_began_ = now;
  }
  uint32_t choices() const;
  /// What it computes for somebody.
  std::vector<RequestKey> wanted() const;
  /// What is wrong with the blocks; empty: each is free once, or belongs to one choice.
  std::string conserve() const;

 private:
  class Port;
  struct Choice {
    Answer answer;  ///< With the committed tokens.
    std::vector<int32_t> blocks;
    bool finished = false;
  };
  struct Running {
    GenerationRequest request;
    std::vector<Choice> choices;
    uint32_t prompt_told = 0;
    bool parked = false;
    bool cancelled = false;
  };
  using Requests = std::map<RequestKey, Running>;

  Result<void> submit(RequestKey key, GenerationRequest request);
  bool advance(RequestKey key, Running& running, std::vector<model::ChoiceUpdate>& updates);
  void compute(Running& running, Choice& choice, model::ChoiceUpdate& update) const;
  bool tell_prompt(Running& running, model::ChoiceUpdate& update) const;
  bool make_room(const GenerationRequest& request, Choice& choice);
  std::optional<int32_t> allocate(const Choice& for_whom);
  void release(Choice& choice);
  actors::EngineSnapshot snapshot() const;

  Options options_;
  std::function<void()> wake_;
  actors::EngineListener listener_;
  std::vector<int32_t> free_;  ///< A stack.
  uint32_t released_ = 0;
  TimePoint step_began_{0};  ///< Of one that hangs; 0: in none.
  Requests requests_;
};

}  // namespace outrider::sim::cluster
