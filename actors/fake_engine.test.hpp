#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "actors/engine_port.hpp"
#include "actors/fake_token.test.hpp"
#include "model/block_pool.hpp"

namespace outrider::actors {

/// An engine without a model: one token for each choice and step, four tokens to a block of a real
/// pool; a choice that finds it empty waits. Ends by length, cancel or refusal. Single-threaded.
class FakeEngine final : public Stepper {
 public:
  explicit FakeEngine(uint32_t blocks = 1u << 14) : pool_(blocks) {}

  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint) override {
    if (request.prompt.front() < 0) {
      return fail(ErrorCode::invalid_argument, "token id out of range", "prompt");
    }
    if (refuse_next_ > 0) {
      --refuse_next_;
      return fail(ErrorCode::overloaded, "told to refuse");
    }
    EXPECT_TRUE(request.committed.empty() || request.choices == 1);
    Running running{std::move(request), {}, false, false};
    running.choices.assign(running.request.choices,
                           {static_cast<uint32_t>(running.request.committed.size()), {}});
    EXPECT_TRUE(requests_.emplace(key, std::move(running)).second);
    return {};
  }
  void cancel(RequestKey key) override {
    if (const auto found = requests_.find(key); found != requests_.end()) {
      found->second.cancelled = true;
    }
  }
  void set_parked(RequestKey key, bool parked) override {
    if (const auto found = requests_.find(key); found != requests_.end()) {
      found->second.parked = parked;
    }
  }
  bool redirect(RequestKey, std::span<const int32_t>) override { return false; }
  bool fork(RequestKey, RequestKey, std::span<const int32_t>) override { return false; }
  void hint(RequestKey key, uint32_t choice, const model::Hint& hint) override {
    hints.push_back({key,
                     choice,
                     hint.base_length,
                     hint.base_hash,
                     {hint.branches.begin(), hint.branches.end()}});
  }
  bool idle() const override { return requests_.empty(); }
  void on_arrival(std::function<void()>) override {}

  std::span<const model::ChoiceUpdate> step() override {
    updates_.clear();
    ++stats_.steps;
    for (auto item = requests_.begin(); item != requests_.end();) {
      item = advance(item->first, item->second) ? requests_.erase(item) : std::next(item);
    }
    return updates_;
  }

  model::CacheReset forget_cached(const std::optional<std::string>& tenant) override {
    resets_.push_back(tenant);
    return {.forgotten = static_cast<uint32_t>(resets_.size()), .held = 0};
  }

  model::EngineStats stats() const override {
    model::EngineStats stats = stats_;
    stats.hints_could_pay = hints_could_pay;
    stats.blocks_total = pool_.total();
    stats.blocks_free = pool_.free();
    for (const auto& [key, running] : requests_) {
      (running.parked ? stats.parked : stats.running) += running.request.choices;
    }
    return stats;
  }
  void check_conservation() const override {
    std::vector<uint32_t> expected(pool_.total(), 0);
    for (const auto& [key, running] : requests_) {
      for (const Choice& choice : running.choices) {
        for (const int32_t block : choice.blocks) ++expected[static_cast<size_t>(block)];
      }
    }
    pool_.check_conservation(expected);
  }

  bool holds(RequestKey key) const { return requests_.count(key) != 0; }
  bool parked(RequestKey key) const { return requests_.at(key).parked; }
  const GenerationRequest& request(RequestKey key) const { return requests_.at(key).request; }
  void refuse_next(uint32_t count) { refuse_next_ = count; }

  std::vector<DraftedHint> hints;  ///< All that came.
  bool hints_could_pay = false;    ///< What it says of each step.

 private:
  struct Choice {
    uint32_t produced = 0;  ///< With the committed tokens.
    std::vector<int32_t> blocks;
  };
  struct Running {
    GenerationRequest request;
    std::vector<Choice> choices;
    bool parked;
    bool cancelled;
  };

  /// Blocks for the prompt, what is produced and one more; false if the pool is empty.
  bool make_room(const Running& running, Choice& choice) {
    while (4 * choice.blocks.size() <= running.request.prompt.size() + choice.produced) {
      const auto block = pool_.allocate();
      if (!block) return false;
      choice.blocks.push_back(*block);
    }
    return true;
  }
  void release(Choice& choice) {
    for (const int32_t block : choice.blocks) pool_.unref(block);
    choice.blocks.clear();
  }

  /// One token for each choice; true when the request has ended.
  bool advance(RequestKey key, Running& running) {
    if (running.parked && !running.cancelled) return false;
    bool ended = true;
    for (uint32_t i = 0; i < running.choices.size(); ++i) {
      Choice& choice = running.choices[i];
      if (choice.produced >= running.request.stop.max_tokens && !running.cancelled) continue;
      if (!running.cancelled && !make_room(running, choice)) {
        ended = false;
        continue;
      }
      model::ChoiceUpdate& update = updates_.emplace_back();
      update.key = key;
      update.choice = i;
      update.first_index = choice.produced;
      if (running.cancelled) {
        update.finish = Finish{FinishReason::cancelled, -1, -1};
        release(choice);
        continue;
      }
      update.tokens.push_back({fake_token(running.request, i, choice.produced), std::nullopt});
      ++choice.produced;
      ++stats_.generated_tokens;
      ++stats_.rows;
      if (choice.produced == running.request.stop.max_tokens) {
        update.finish = Finish{FinishReason::length, -1, -1};
        update.timings = RequestTimings{};
        release(choice);
      } else {
        ended = false;
      }
    }
    return ended;
  }

  model::BlockPool pool_;
  std::map<RequestKey, Running> requests_;
  std::vector<model::ChoiceUpdate> updates_;
  model::EngineStats stats_;
  std::vector<std::optional<std::string>> resets_;
  uint32_t refuse_next_ = 0;
};

/// An engine that steps when the test says so, on the test's thread.
class ManualEngine final : public EnginePort {
 public:
  ManualEngine(EngineListener listener, std::shared_ptr<FakeEngine> engine)
      : listener_(std::move(listener)), engine_(std::move(engine)) {}

  Result<void> submit(RequestKey key, GenerationRequest request) override {
    EngineEvents events;
    if (auto taken = engine_->submit(key, std::move(request), TimePoint{}); taken) {
      events.accepted.push_back(key);
    } else {
      events.rejected.emplace_back(key, taken.error());
    }
    listener_(std::move(events));
    return {};
  }
  void cancel(RequestKey key) override { engine_->cancel(key); }
  void set_parked(RequestKey key, bool parked) override { engine_->set_parked(key, parked); }
  void hint(std::vector<DraftedHint> hints) override {
    std::move(hints.begin(), hints.end(), std::back_inserter(engine_->hints));
  }
  void count_hints(HintOutcome outcome, uint64_t count) override {
    refused_.hints[static_cast<size_t>(outcome)] += count;
  }
  EngineSnapshot snapshot() const override {
    EngineSnapshot snapshot{engine_->stats(), 0, 1000};
    snapshot.stats.hints = refused_;
    snapshot.step_began = step_began;
    return snapshot;
  }
  void read_cached(model::CachedQuery query, CachedDone done) override {
    done(engine_->read_cached(query));
  }

  TimePoint step_began{0};  ///< As snapshots have it.

  /// `time` is what the step takes by the report.
  void step(Duration time = std::chrono::milliseconds(1)) {
    EngineEvents events;
    const auto updates = engine_->step();
    events.updates.assign(updates.begin(), updates.end());
    events.step = {static_cast<uint32_t>(updates.size()), static_cast<uint32_t>(updates.size()),
                   true, time};
    if (!events.empty()) listener_(std::move(events));
  }

 private:
  EngineListener listener_;
  std::shared_ptr<FakeEngine> engine_;
  HintCounters refused_;
};

}  // namespace outrider::actors
