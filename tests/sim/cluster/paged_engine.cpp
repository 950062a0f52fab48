#include "tests/sim/cluster/paged_engine.hpp"

#include <algorithm>
#include <utility>

namespace outrider::sim::cluster {
namespace {

constexpr size_t k_block_tokens = 4;
/// A planted bug shows in every so many releases.
constexpr uint32_t k_bug_each = 3;
/// Of prompt tokens that are told: so many in a step, or a share of long prompts.
constexpr size_t k_prompt_step_tokens = 6;
constexpr size_t k_prompt_steps_max = 6;

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
  for (uint32_t i = 0; i < running.request.choices; ++i) {
    running.choices.push_back({Answer(running.request, i, options_.twist), {}, false});
  }
  Answer& answer = running.choices.front().answer;
  for (const int32_t id : running.request.committed) {
    OUTRIDER_CHECK(!answer.finish(), key.session, answer.length());
    answer.commit(running.request, id);
  }
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
  const size_t tokens = request.prompt.size() + choice.answer.length();
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

/// False: there are more.
bool PagedEngine::tell_prompt(Running& running, model::ChoiceUpdate& update) const {
  const GenerationRequest& request = running.request;
  if (request.prompt_logprobs < 0) return true;
  const size_t size = request.prompt.size();
  const size_t step = std::max(k_prompt_step_tokens, size / k_prompt_steps_max);
  const size_t end = std::min(size, running.prompt_told + step);
  update.prompt_first_index = running.prompt_told;
  for (; running.prompt_told < end; ++running.prompt_told) {
    update.prompt_tokens.push_back(
        Answer::prompt_token(request, running.prompt_told, options_.twist));
  }
  return running.prompt_told == size;
}

void PagedEngine::compute(Running& running, Choice& choice, model::ChoiceUpdate& update) const {
  const GenerationRequest& request = running.request;
  update.first_index = choice.answer.length();
  if (running.cancelled) {
    update.finish = Finish{FinishReason::cancelled, -1, -1};
  } else if (update.choice == 0 && !tell_prompt(running, update)) {
    return;
  } else if (!choice.answer.finish()) {  // An earlier attempt may have told all of it.
    const int32_t id = choice.answer.draw(request, update.key.generation);
    update.tokens.push_back(choice.answer.told(request, id));
    choice.answer.commit(request, id);
  }
  if (!update.finish) update.finish = choice.answer.finish();
  if (update.finish) update.timings = RequestTimings{};
}

/// One token for each choice; true when the request has ended.
bool PagedEngine::advance(RequestKey key, Running& running,
                          std::vector<model::ChoiceUpdate>& updates) {
  if (running.parked && !running.cancelled) return false;
  bool ended = true;
  const GenerationRequest& request = running.request;
  for (uint32_t i = 0; i < running.choices.size(); ++i) {
    Choice& choice = running.choices[i];
    if (choice.finished) continue;
    const bool awaits_prompt =
        i > 0 && request.prompt_logprobs >= 0 && running.prompt_told < request.prompt.size();
    if (!running.cancelled && (awaits_prompt || !make_room(request, choice))) {
      ended = false;
      continue;
    }
    model::ChoiceUpdate& update = updates.emplace_back();
    update.key = key;
    update.choice = i;
    compute(running, choice, update);
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
