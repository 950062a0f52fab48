#include "tests/sim/cluster/paged_engine.hpp"

#include <utility>

#include "actors/fake_token.test.hpp"

namespace outrider::sim::cluster {
namespace {

constexpr size_t k_block_tokens = 4;
/// A planted bug shows in every so many releases.
constexpr uint32_t k_bug_each = 3;

}  // namespace

class PagedEngine::Port final : public actors::EnginePort {
 public:
  explicit Port(std::shared_ptr<PagedEngine> engine) : engine_(std::move(engine)) {}
  ~Port() override {
    engine_->listener_ = nullptr;
    engine_->requests_.clear();
  }

  Result<void> submit(RequestKey key, GenerationRequest request) override {
    actors::EngineEvents events;
    if (auto taken = engine_->submit(key, std::move(request)); taken) {
      events.accepted.push_back(key);
    } else {
      events.rejected.emplace_back(key, taken.error());
    }
    engine_->listener_(std::move(events));
    engine_->wake_();
    return {};
  }
  void cancel(RequestKey key) override {
    if (const auto at = engine_->requests_.find(key); at != engine_->requests_.end()) {
      at->second.cancelled = true;
    }
  }
  void set_parked(RequestKey key, bool parked) override {
    if (const auto at = engine_->requests_.find(key); at != engine_->requests_.end()) {
      at->second.parked = parked;
    }
  }
  void hint(std::vector<actors::DraftedHint>) override {}
  void count_hints(HintOutcome, uint64_t) override {}
  actors::EngineSnapshot snapshot() const override { return engine_->snapshot(); }
  void read_cached(model::CachedQuery, CachedDone done) override { done({}); }

 private:
  std::shared_ptr<PagedEngine> engine_;
};

PagedEngine::PagedEngine(Options options, std::function<void()> wake)
    : options_(options), wake_(std::move(wake)) {
  for (uint32_t i = options_.blocks; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
}

std::unique_ptr<actors::EnginePort> PagedEngine::open(const std::shared_ptr<PagedEngine>& self,
                                                      actors::EngineListener listener) {
  listener_ = std::move(listener);
  return std::make_unique<Port>(self);
}

uint32_t PagedEngine::choices() const {
  uint32_t count = 0;
  for (const auto& [key, running] : requests_) count += running.request.choices;
  return count;
}

std::vector<RequestKey> PagedEngine::wanted() const {
  std::vector<RequestKey> keys;
  for (const auto& [key, running] : requests_) {
    if (!running.cancelled) keys.push_back(key);
  }
  return keys;
}

Result<void> PagedEngine::submit(RequestKey key, GenerationRequest request) {
  if (request.prompt.front() < 0) {
    return fail(ErrorCode::invalid_argument, "token id out of range", "prompt");
  }
  if (choices() + request.choices > options_.choices && !request.continues) {
    return fail(ErrorCode::overloaded, "the engine's queue is full");
  }
  OUTRIDER_CHECK(request.committed.empty() || request.choices == 1, key.session);
  OUTRIDER_CHECK(!requests_.contains(key), key.session, key.generation);
  Running& running = requests_[key];
  running.request = std::move(request);
  running.choices.resize(running.request.choices);
  running.choices.front().produced = static_cast<uint32_t>(running.request.committed.size());
  return {};
}

/// From the last choice of the last request on, as far as they stand behind this one.
std::optional<int32_t> PagedEngine::allocate(const Choice& for_whom) {
  for (auto at = requests_.rbegin(); free_.empty() && at != requests_.rend(); ++at) {
    std::vector<Choice>& choices = at->second.choices;
    for (auto choice = choices.rbegin(); free_.empty() && choice != choices.rend(); ++choice) {
      if (&*choice == &for_whom) return std::nullopt;
      release(*choice);
    }
  }
  if (free_.empty()) return std::nullopt;
  const int32_t block = free_.back();
  free_.pop_back();
  return block;
}

/// Blocks for the prompt, what is produced and one more.
bool PagedEngine::make_room(const GenerationRequest& request, Choice& choice) {
  const size_t tokens = request.prompt.size() + choice.produced;
  while (k_block_tokens * choice.blocks.size() <= tokens) {
    const auto block = allocate(choice);
    if (!block) return false;
    choice.blocks.push_back(*block);
  }
  return true;
}

void PagedEngine::release(Choice& choice) {
  if (choice.blocks.empty()) return;
  if (options_.frees_twice && ++released_ % k_bug_each == 0) {
    free_.push_back(choice.blocks.front());
  }
  free_.insert(free_.end(), choice.blocks.begin(), choice.blocks.end());
  choice.blocks.clear();
}

/// One token for each choice; true when the request has ended.
bool PagedEngine::advance(RequestKey key, Running& running,
                          std::vector<model::ChoiceUpdate>& updates) {
  if (running.parked && !running.cancelled) return false;
  bool ended = true;
  GenerationRequest& request = running.request;
  for (uint32_t i = 0; i < running.choices.size(); ++i) {
    Choice& choice = running.choices[i];
    if (choice.finished) continue;
    if (!running.cancelled && !make_room(request, choice)) {
      ended = false;
      continue;
    }
    model::ChoiceUpdate& update = updates.emplace_back();
    update.key = key;
    update.choice = i;
    update.first_index = choice.produced;
    if (running.cancelled) {
      update.finish = Finish{FinishReason::cancelled, -1, -1};
    } else {
      const int32_t token = actors::fake_token(request, i, choice.produced++);
      update.tokens.push_back({token ^ static_cast<int32_t>(options_.twist), std::nullopt});
      if (choice.produced == request.stop.max_tokens) {
        update.finish = Finish{FinishReason::length, -1, -1};
        update.timings = RequestTimings{};
      }
    }
    choice.finished = update.finish.has_value();
    if (choice.finished) release(choice);
    ended = ended && choice.finished;
  }
  return ended;
}

void PagedEngine::step() {
  step_began_ = TimePoint{0};
  if (stopped()) return;
  actors::EngineEvents events;
  for (auto at = requests_.begin(); at != requests_.end();) {
    at = advance(at->first, at->second, events.updates) ? requests_.erase(at) : std::next(at);
  }
  const auto tokens = static_cast<uint32_t>(events.updates.size());
  events.step = {tokens, tokens, true, std::chrono::milliseconds(1)};
  if (!events.empty()) listener_(std::move(events));
}

actors::EngineSnapshot PagedEngine::snapshot() const {
  actors::EngineSnapshot snapshot;
  snapshot.stats.blocks_total = options_.blocks;
  snapshot.stats.blocks_free = static_cast<uint32_t>(free_.size());
  for (const auto& [key, running] : requests_) {
    (running.parked ? snapshot.stats.parked : snapshot.stats.running) += running.request.choices;
  }
  snapshot.rows_per_s = 1000;
  snapshot.step_began = step_began_;
  return snapshot;
}

std::string PagedEngine::conserve() const {
  std::vector<uint32_t> found(options_.blocks, 0);
  for (const int32_t block : free_) ++found[static_cast<size_t>(block)];
  for (const auto& [key, running] : requests_) {
    for (const Choice& choice : running.choices) {
      for (const int32_t block : choice.blocks) ++found[static_cast<size_t>(block)];
    }
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] != 1) {
      return "block " + std::to_string(i) + " is there " + std::to_string(found[i]) + " times";
    }
  }
  return {};
}

}  // namespace outrider::sim::cluster
