#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/engine_port.hpp"
#include "base/clock.hpp"
#include "kernels/ops.hpp"
#include "model/tier_work.hpp"
#include "tests/sim/cluster/answer.hpp"

namespace outrider::sim::cluster {

/// A target's engine without a model: one token for each choice and step, by Answer, over the real
/// pool, prefix index and traffic with the tier below. What it computes into a block is a function
/// of the tokens; a choice one of whose blocks holds anything else gets wrong tokens. Where the
/// prompt's tokens are to be told they come first, in several steps. A choice that finds no block
/// takes those of the last one behind it, which computes again.
class PagedEngine {
 public:
  struct Options {
    uint32_t blocks = 1u << 8;
    uint32_t choices = 64;     ///< That it takes; beyond them `overloaded`.
    uint64_t twist = 0;        ///< Of another model: it gives other tokens.
    bool leaks = false;        ///< Now and then a block of those that a choice gives back.
    bool frees_twice = false;  ///< One of them.
    std::shared_ptr<kernels::Ops> ops;
    std::shared_ptr<model::BlockTier> tier;  ///< Null: there is none.
  };
  /// `wake` is called when there is something to do.
  PagedEngine(Options options, std::function<void()> wake);
  ~PagedEngine();

  /// Its port, once: with it the engine stops.
  std::unique_ptr<actors::EnginePort> open(const std::shared_ptr<PagedEngine>& self,
                                           actors::EngineListener listener);
  void step();
  bool idle() const;
  bool stopped() const { return !listener_ && idle(); }
  /// It is in a step, and still in it when it should have ended.
  void hang_in_step(TimePoint now) {
    if (step_began_ == TimePoint{0}) step_began_ = now;
  }
  uint32_t choices() const;
  /// What it computes for somebody.
  std::vector<RequestKey> wanted() const;
  /// What is wrong with the blocks; empty: each is free, or somebody's. Aborts where the cache
  /// itself knows that it is wrong.
  std::string conserve() const;

 private:
  class Port;
  struct Choice {
    Answer answer;
    model::KvSequence kv;
    std::vector<int32_t> output;     ///< With the committed tokens.
    std::vector<BlockId> chain;      ///< Of its full blocks.
    std::vector<uint64_t> contents;  ///< What they have to hold.
    uint32_t seen = 0;               ///< Blocks whose memory was looked at, all of it.
    std::shared_ptr<model::TierRead> reading;
    bool owns_read = false;   ///< It asked for `reading`.
    bool asked_tier = false;  ///< In this stay in the queue.
    bool finished = false;
  };

  struct Running {
    GenerationRequest request;
    BlockId root{};
    uint64_t owner = 0;
    std::shared_ptr<const model::TierRetention> retention;
    std::vector<Choice> choices;
    uint32_t prompt_told = 0;
    bool parked = false;
    bool cancelled = false;

    size_t length(const Choice& choice) const {
      return request.prompt.size() + choice.output.size();
    }
    int32_t token_at(const Choice& choice, size_t at) const {
      const size_t prompt = request.prompt.size();
      return at < prompt ? request.prompt[at] : choice.output[at - prompt];
    }
  };
  using Requests = std::map<RequestKey, Running>;
  struct Errand {
    model::CachedQuery query;
    actors::EnginePort::CachedDone done;
  };

  Result<void> submit(RequestKey key, GenerationRequest request);
  void stop();
  bool advance(RequestKey key, Running& running, std::vector<model::ChoiceUpdate>& updates);
  void compute(Running& running, Choice& choice, model::ChoiceUpdate& update) const;
  bool tell_prompt(Running& running, model::ChoiceUpdate& update) const;
  /// False: not in this step.
  bool make_ready(Running& running, Choice& choice);
  bool make_room(const Running& running, Choice& choice);
  bool release_one_behind(const Choice& choice);
  void release(Choice& choice);

  // The cache, as model::Engine uses it.
  uint32_t cacheable_blocks(const Running& running, const Choice& choice) const;
  BlockId root_of(const std::string& tenant, const std::string& salt) const;
  void name_blocks(const Running& running, Choice& choice);
  bool waits_for_tier(const Running& running, Choice& choice);
  std::shared_ptr<model::TierRead> ask_tier(const Running& running, const Choice& choice,
                                            uint32_t first, uint32_t end);
  void leave_read(Choice& choice);
  void publish(const Running& running, Choice& choice);
  void offer(const Running& running, const Choice& choice, uint32_t first);
  std::span<std::byte> memory_of(int32_t block) const;
  bool is_right(Choice& choice) const;
  std::vector<model::CachedBlock> read_cached(const model::CachedQuery& query) const;
  void run_errands();
  actors::EngineSnapshot snapshot() const;

  Options options_;
  std::function<void()> wake_;
  actors::EngineListener listener_;
  Digest256 kv_namespace_{};
  std::unique_ptr<model::KvCache> cache_;  ///< Before the requests, whose sequences point to it.
  std::unique_ptr<model::TierWork> tier_;
  mutable BlockHasher hasher_;
  uint32_t released_ = 0;
  std::vector<model::KvSequence> leaked_;
  TimePoint step_began_{0};  ///< Of one that hangs; 0: in none.
  std::vector<Errand> errands_;
  Requests requests_;
};

}  // namespace outrider::sim::cluster
