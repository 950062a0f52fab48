#include "tests/sim/cluster/paged_engine.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "tests/sim/cluster/block_content.hpp"

namespace outrider::sim::cluster {
namespace {

/// A planted bug shows in every so many releases.
constexpr uint32_t k_bug_each = 3;
/// Of prompt tokens that are told: so many in a step, or a share of long prompts.
constexpr size_t k_prompt_step_tokens = 6;
constexpr size_t k_prompt_steps_max = 6;
/// Few, so that some do not fit.
constexpr size_t k_outgoing_blocks = 64;
constexpr uint64_t k_absorbed_blocks = 8;
constexpr uint64_t k_stored_blocks = 4;

}  // namespace

class PagedEngine::Port final : public actors::EnginePort {
 public:
  explicit Port(std::shared_ptr<PagedEngine> engine) : engine_(std::move(engine)) {}
  ~Port() override { engine_->stop(); }

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
  void read_cached(model::CachedQuery query, CachedDone done) override {
    engine_->errands_.push_back({std::move(query), std::move(done)});
    engine_->wake_();
  }

 private:
  std::shared_ptr<PagedEngine> engine_;
};

PagedEngine::PagedEngine(Options options, std::function<void()> wake)
    : options_(std::move(options)), wake_(std::move(wake)) {
  kv_namespace_[0] = static_cast<uint8_t>(options_.twist);
  cache_ = model::KvCache::create(options_.ops, k_geometry, options_.blocks).value();
  if (!options_.tier) return;
  tier_ = std::make_unique<model::TierWork>(options_.tier, options_.ops, *cache_, kv_namespace_,
                                            k_outgoing_blocks);
  tier_->on_arrival(wake_);
}

PagedEngine::~PagedEngine() = default;

std::unique_ptr<actors::EnginePort> PagedEngine::open(const std::shared_ptr<PagedEngine>& self,
                                                      actors::EngineListener listener) {
  listener_ = std::move(listener);
  return std::make_unique<Port>(self);
}

/// What requests that are over have left for the tier goes there yet, as of an EngineLoop.
void PagedEngine::stop() {
  listener_ = nullptr;
  errands_.clear();
  if (!requests_.empty()) tier_ = nullptr;
  requests_.clear();
}

bool PagedEngine::idle() const {
  return requests_.empty() && errands_.empty() && (!tier_ || tier_->outgoing() == 0);
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
  const GenerationRequest& it = running.request;
  running.root = root_of(it.tenant, it.cache_salt);
  running.owner = hash64(it.tenant);
  running.retention =
      std::make_shared<model::TierRetention>(model::TierRetention{.tenant = it.tenant});
  for (uint32_t i = 0; i < it.choices; ++i) {
    running.choices.push_back({.answer = Answer(it, i, options_.twist),
                               .kv = model::KvSequence(*cache_),
                               .output = {},
                               .chain = {},
                               .contents = {},
                               .reading = nullptr});
  }
  Choice& first = running.choices.front();
  for (const int32_t id : it.committed) {
    OUTRIDER_CHECK(!first.answer.finish(), key.session, first.answer.length());
    first.answer.commit(it, id);
    first.output.push_back(id);
  }
  return {};
}

/// From the last choice of the last request on, as far as they stand behind this one.
bool PagedEngine::release_one_behind(const Choice& choice) {
  for (auto at = requests_.rbegin(); at != requests_.rend(); ++at) {
    std::vector<Choice>& choices = at->second.choices;
    for (auto last = choices.rbegin(); last != choices.rend(); ++last) {
      if (&*last == &choice) return false;
      if (last->kv.length() == 0) continue;
      release(*last);
      return true;
    }
  }
  return false;
}

/// Rows for all tokens that are known.
bool PagedEngine::make_room(const Running& running, Choice& choice) {
  const auto length = static_cast<uint32_t>(running.length(choice));
  while (!choice.kv.append(length - choice.kv.length())) {
    if (!release_one_behind(choice)) return false;
  }
  return true;
}

void PagedEngine::release(Choice& choice) {
  leave_read(choice);
  choice.asked_tier = false;
  choice.seen = 0;
  if (choice.kv.length() == 0) return;
  if (++released_ % k_bug_each == 0) {
    if (options_.leaks) leaked_.push_back(choice.kv.fork());
    if (options_.frees_twice) {
      const_cast<model::BlockPool&>(cache_->pool()).unref(choice.kv.table().front());
    }
  }
  choice.kv.reset();
}

bool PagedEngine::make_ready(Running& running, Choice& choice) {
  name_blocks(running, choice);
  if (choice.kv.length() == 0) {
    if (waits_for_tier(running, choice)) return false;
    const uint32_t usable = cacheable_blocks(running, choice);
    const std::span<const BlockId> chain = std::span(choice.chain).first(usable);
    choice.kv.take(chain.first(cache_->index().longest(chain)));
    leave_read(choice);
    offer(running, choice, 0);
  }
  if (!make_room(running, choice)) {
    release(choice);
    return false;
  }
  publish(running, choice);
  return true;
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
    int32_t id = choice.answer.draw(request, update.key.generation);
    if (!is_right(choice)) id ^= 1;
    update.tokens.push_back(choice.answer.told(request, id));
    choice.answer.commit(request, id);
    choice.output.push_back(id);
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
    if (!running.cancelled && (awaits_prompt || !make_ready(running, choice))) {
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
  run_errands();
  actors::EngineEvents events;
  if (tier_) tier_->absorb(k_absorbed_blocks * k_geometry.block_bytes());
  for (auto at = requests_.begin(); at != requests_.end();) {
    at = advance(at->first, at->second, events.updates) ? requests_.erase(at) : std::next(at);
  }
  if (tier_) tier_->store(k_stored_blocks * k_geometry.block_bytes());
  const auto tokens = static_cast<uint32_t>(events.updates.size());
  events.step = {tokens, tokens, true, std::chrono::milliseconds(1)};
  if (listener_ && !events.empty()) listener_(std::move(events));
}

actors::EngineSnapshot PagedEngine::snapshot() const {
  actors::EngineSnapshot snapshot;
  snapshot.stats.blocks_total = options_.blocks;
  snapshot.stats.blocks_free = cache_->available();
  for (const auto& [key, running] : requests_) {
    (running.parked ? snapshot.stats.parked : snapshot.stats.running) += running.request.choices;
  }
  snapshot.rows_per_s = 1000;
  snapshot.step_began = step_began_;
  return snapshot;
}

std::string PagedEngine::conserve() const {
  std::set<int32_t> held;
  std::vector<const model::KvSequence*> sequences;
  for (const auto& [key, running] : requests_) {
    for (const Choice& choice : running.choices) {
      sequences.push_back(&choice.kv);
      for (const int32_t block : choice.kv.table()) {
        if (!cache_->index().contains(block)) held.insert(block);
      }
    }
  }
  const size_t known = held.size() + cache_->index().size();
  if (known != cache_->pool().used()) {
    return std::to_string(cache_->pool().used()) + " blocks are in use, and somebody's are " +
           std::to_string(known);
  }
  if (leaked_.empty()) cache_->check_conservation(sequences);
  return {};
}

}  // namespace outrider::sim::cluster
