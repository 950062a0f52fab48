#include "actors/peer_tier.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "actors/block_giver.hpp"
#include "actors/block_wire.hpp"
#include "actors/engine_loop.hpp"
#include "actors/real_world.test.hpp"
#include "base/log.hpp"
#include "link/emulated_nccl.test.hpp"
#include "link/tcp_link.hpp"

namespace outrider::actors {
namespace {

/// A gate that joins two ends in this process.
class Lines {
 public:
  PeerLines made(Duration patience = std::chrono::seconds(2),
                 std::shared_ptr<link::Nccl> nccl = nullptr) {
    return {.dial = [this](const std::string&, const LineName& name) { return dial(name); },
            .new_name = [this] { return LineName{++names_}; },
            .clock = clock_,
            .patience = patience,
            .nccl = {std::move(nccl), {{.streams = 1}, clock_, nccl_counters_}},
            .threads = system_threads()};
  }
  uint64_t messages() const { return counters_->messages_sent; }
  uint64_t messages_over_nccl() const { return nccl_counters_->messages_sent; }

  std::atomic<uint32_t> dialled = 0;
  std::atomic<bool> broken = false;

 private:
  Result<std::unique_ptr<link::TensorLink>> dial(const LineName& name) {
    ++dialled;
    if (broken) return fail(ErrorCode::unavailable, "told to");
    const std::lock_guard lock(mutex_);
    auto found = waiting_.extract(name);
    link::OwnedFd end;
    if (found.empty()) {
      int ends[2] = {};
      OUTRIDER_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      waiting_.emplace(name, link::OwnedFd(ends[0]));
      end = link::OwnedFd(ends[1]);
    } else {
      end = std::move(found.mapped());
    }
    auto made = link::TcpLink::open(
        std::move(end), {.settings = {.streams = 1}, .clock = clock_, .counters = counters_});
    if (!made) return made.error();
    return std::unique_ptr<link::TensorLink>(std::move(*made));
  }

  std::mutex mutex_;
  std::atomic<uint8_t> names_ = 0;
  std::map<LineName, link::OwnedFd> waiting_;
  std::shared_ptr<SteadyClock> clock_ = std::make_shared<SteadyClock>();
  std::shared_ptr<link::LinkCounters> counters_ = std::make_shared<link::LinkCounters>();
  std::shared_ptr<link::LinkCounters> nccl_counters_ = std::make_shared<link::LinkCounters>();
};

constexpr uint64_t k_worker = 7;

/// An engine in a step that takes until it is told.
class BusyEngine final : public EnginePort {
 public:
  explicit BusyEngine(std::shared_ptr<EnginePort> inner) : inner_(std::move(inner)) {}

  void end_step() {
    const std::lock_guard lock(mutex_);
    is_busy_ = false;
    for (auto& [query, done] : asked_) inner_->read_cached(std::move(query), std::move(done));
    asked_.clear();
  }

  Result<void> submit(RequestKey key, GenerationRequest request) override {
    return inner_->submit(key, std::move(request));
  }
  void cancel(RequestKey key) override { inner_->cancel(key); }
  void set_parked(RequestKey key, bool parked) override { inner_->set_parked(key, parked); }
  void hint(std::vector<DraftedHint> hints) override { inner_->hint(std::move(hints)); }
  void count_hints(HintOutcome outcome, uint64_t count) override {
    inner_->count_hints(outcome, count);
  }
  EngineSnapshot snapshot() const override { return inner_->snapshot(); }
  void read_cached(model::CachedQuery query, CachedDone done) override {
    const std::lock_guard lock(mutex_);
    if (!is_busy_) return inner_->read_cached(std::move(query), std::move(done));
    asked_.emplace_back(std::move(query), std::move(done));
  }

 private:
  const std::shared_ptr<EnginePort> inner_;
  std::mutex mutex_;
  bool is_busy_ = true;
  std::vector<std::pair<model::CachedQuery, CachedDone>> asked_;
};

/// One engine that has computed something, and another one that may ask it.
class PeerTierTest : public ::testing::Test {
 protected:
  PeerTierTest() {
    auto giving = make_engine(clock_);
    giver_engine_ = std::make_shared<EngineLoop>(
        make_stepper(std::move(giving)), [this](EngineEvents events) { heard(events); }, clock_);
    giver_ = std::make_unique<BlockGiver>(giver_engine_, lines_.made(), log_);
    tier_ = std::make_shared<PeerTier>(nullptr, lines_.made(), log_);
    taking_ = make_engine(clock_);
    taking_->attach_tier(tier_);
    request_.stop.max_tokens = 40;
    request_.stop.ignore_eos = true;
    request_.sampling.temperature = 0.9f;
    request_.sampling.seed = 2627;
    request_.logprobs = 2;
    for (int32_t i = 0; i < 70; ++i) request_.prompt.push_back(i % 61);
  }

  void heard(const EngineEvents& events) {
    for (const model::ChoiceUpdate& update : events.updates) {
      if (update.finish) finished_.set_value();
    }
  }
  void compute_there() {
    ASSERT_TRUE(giver_engine_->submit({1, 1}, request_));
    finished_.get_future().wait();
    giver_engine_->wait_idle();
  }
  struct Said {
    std::vector<TokenOut> tokens;
    RequestTimings timings;
  };
  static Said run(model::Engine& engine, const GenerationRequest& request, RequestKey key) {
    Said said;
    const auto taken = engine.submit(key, request);
    OUTRIDER_CHECK(taken.ok(), taken.error().message);
    for (bool over = false; !over;) {
      for (const model::ChoiceUpdate& update : engine.step()) {
        said.tokens.insert(said.tokens.end(), update.tokens.begin(), update.tokens.end());
        if (update.timings) said.timings = *update.timings;
        over = over || update.finish.has_value();
      }
      std::this_thread::yield();
    }
    return said;
  }
  void hand_over() {
    tier_->know(k_worker, "gate", [this](LineName line) {
      if (tells_) giver_->serve("gate", std::move(line));
    });
  }
  /// As the twin goes on: the first tokens are committed.
  GenerationRequest continued(const std::vector<TokenOut>& whole, size_t committed) {
    hand_over();
    GenerationRequest request = request_;
    for (size_t i = 0; i < committed; ++i) request.committed.push_back(whole[i].id);
    request.kv_peer = k_worker;
    return request;
  }

  const SteadyClock clock_;
  std::shared_ptr<spdlog::logger> log_ = *make_logger({"off", false});
  Lines lines_;
  std::promise<void> finished_;
  std::shared_ptr<EngineLoop> giver_engine_;
  std::unique_ptr<BlockGiver> giver_;
  std::shared_ptr<PeerTier> tier_;
  std::unique_ptr<model::Engine> taking_;
  GenerationRequest request_;
  std::atomic<bool> tells_ = true;
};

TEST_F(PeerTierTest, ATwinGoesOnWithTheBlocksThatTheOtherHas) {
  compute_there();
  auto reference = make_engine(clock_);
  const Said whole = run(*reference, request_, {1, 1});
  const Said rest = run(*taking_, continued(whole.tokens, 30), {1, 2});
  ASSERT_EQ(rest.tokens.size(), 10u);
  EXPECT_TRUE(std::equal(rest.tokens.begin(), rest.tokens.end(), whole.tokens.begin() + 30))
      << "tokens and logprob bits";
  EXPECT_EQ(rest.timings.cached.all, 70u);
  EXPECT_EQ(tier_->taken(), 6u) << "of 100 tokens before the one that is sampled from";
  EXPECT_EQ(giver_->given(), 6u);
  EXPECT_LT(taking_->stats().rows, 20u);
  tier_->through(k_worker);
  while (giver_->open() > 0) std::this_thread::yield();
  const Said again = run(*taking_, continued(whole.tokens, 35), {1, 3});
  EXPECT_EQ(again.tokens.size(), 5u);
}

TEST_F(PeerTierTest, BlocksGoOverNcclWhereBothHaveItAndElseOverTheLineAsItIs) {
  compute_there();
  auto reference = make_engine(clock_);
  const Said whole = run(*reference, request_, {1, 1});
  const auto world = std::make_shared<link::testing_support::EmulatedWorld>();
  const auto device = [&](uint8_t number) {
    return std::make_shared<link::testing_support::EmulatedNccl>(world, number);
  };
  const Duration patience = std::chrono::seconds(2);
  for (const bool both : {true, false}) {
    giver_ = std::make_unique<BlockGiver>(giver_engine_,
                                          lines_.made(patience, both ? device(2) : nullptr), log_);
    tier_ = std::make_shared<PeerTier>(nullptr, lines_.made(patience, device(1)), log_);
    taking_ = make_engine(clock_);
    taking_->attach_tier(tier_);
    const uint64_t before = lines_.messages_over_nccl();
    const Said rest = run(*taking_, continued(whole.tokens, 30), {1, 2});
    EXPECT_TRUE(std::equal(rest.tokens.begin(), rest.tokens.end(), whole.tokens.begin() + 30));
    EXPECT_EQ(tier_->taken(), 6u);
    const uint64_t over_nccl = lines_.messages_over_nccl() - before;
    EXPECT_TRUE(both ? over_nccl >= 7 : over_nccl == 0) << over_nccl;
  }
}

TEST_F(PeerTierTest, ALongStepOfTheOtherIsWaitedForAndHoldsUpNoOtherPeer) {
  compute_there();
  auto reference = make_engine(clock_);
  const Said whole = run(*reference, request_, {1, 1});
  const auto busy = std::make_shared<BusyEngine>(giver_engine_);
  const auto patience = std::chrono::milliseconds(200);  // of a machine with more to do
  giver_ = std::make_unique<BlockGiver>(busy, lines_.made(patience), log_);
  tier_ = std::make_shared<PeerTier>(nullptr, lines_.made(patience), log_);
  taking_ = make_engine(clock_);
  taking_->attach_tier(tier_);
  const GenerationRequest request = continued(whole.tokens, 30);
  auto rest = std::async(std::launch::async, [&] { return run(*taking_, request, {1, 2}); });
  while (lines_.messages() < 6) std::this_thread::yield();  // the query, and words of patience
  std::promise<void> told;
  tier_->know(k_worker + 1, "gate", [&](const LineName&) { told.set_value(); });
  told.get_future().wait();
  EXPECT_EQ(tier_->taken(), 0u);
  busy->end_step();
  const Said said = rest.get();
  EXPECT_EQ(tier_->taken(), 6u);
  EXPECT_TRUE(std::equal(said.tokens.begin(), said.tokens.end(), whole.tokens.begin() + 30));
}

TEST_F(PeerTierTest, TheLineIsThereFromTheStartUntilNobodyNeedsIt) {
  compute_there();
  auto reference = make_engine(clock_);
  const Said whole = run(*reference, request_, {1, 1});
  const GenerationRequest first = continued(whole.tokens, 30);
  const GenerationRequest second = continued(whole.tokens, 35);
  while (giver_->open() == 0) std::this_thread::yield();
  run(*taking_, first, {1, 2});
  tier_->through(k_worker);
  EXPECT_EQ(giver_->open(), 1u);
  run(*taking_, second, {1, 3});
  tier_->through(k_worker);
  EXPECT_EQ(lines_.dialled, 2u) << "one line for both";
  while (giver_->open() > 0) std::this_thread::yield();
}

TEST_F(PeerTierTest, OnlyWhoIsToldOfAPeerAsksIt) {
  compute_there();
  GenerationRequest request = request_;
  const Said plain = run(*taking_, request, {1, 1});
  EXPECT_EQ(lines_.dialled, 0u);
  EXPECT_EQ(plain.timings.cached.all, 0u);
  request.kv_peer = k_worker + 1;
  request.prompt[0] ^= 1;
  run(*taking_, request, {1, 2});
  EXPECT_EQ(lines_.dialled, 0u) << "nobody knows that one";
}

TEST_F(PeerTierTest, APeerThatHasNothingOrDoesNotComeIsAMiss) {
  auto reference = make_engine(clock_);
  const Said whole = run(*reference, request_, {1, 1});
  EXPECT_EQ(run(*taking_, continued(whole.tokens, 0), {1, 2}).tokens, whole.tokens);
  EXPECT_EQ(tier_->taken(), 0u);
  tier_->through(k_worker);
  while (giver_->open() > 0) std::this_thread::yield();
  const uint32_t dialled = lines_.dialled;
  lines_.broken = true;
  GenerationRequest other = continued(whole.tokens, 0);
  other.prompt[0] ^= 1;
  const Said here = run(*taking_, other, {1, 3});
  other.kv_peer = 0;
  EXPECT_EQ(here.tokens, run(*reference, other, {1, 4}).tokens);
  EXPECT_GT(lines_.dialled, dialled) << "a line of its own was tried";
}

TEST_F(PeerTierTest, APeerThatIsGoneHoldsUpARequestOnceForABoundedTime) {
  tells_ = false;
  auto reference = make_engine(clock_);
  const Said whole = run(*reference, request_, {1, 1});
  EXPECT_EQ(run(*taking_, continued(whole.tokens, 0), {1, 2}).tokens, whole.tokens);
  EXPECT_EQ(lines_.dialled, 1u);
  GenerationRequest other = continued(whole.tokens, 0);
  other.prompt[0] ^= 1;
  run(*taking_, other, {1, 3});
  EXPECT_EQ(lines_.dialled, 1u) << "it is not asked again";
}

/// Has nothing, and remembers what it was asked for.
class EmptyTier final : public model::BlockTier {
 public:
  void serve(std::shared_ptr<model::TierOffers>) override {}
  void look() override {}
  std::vector<model::TierWants> touch(std::span<const BlockId> chain,
                                      const std::shared_ptr<const model::TierRetention>&) override {
    return std::vector<model::TierWants>(chain.size());
  }
  void put(const Digest256&, uint32_t, model::TierOffer) override {}
  model::WarmRoom warm_room(const BlockId&, size_t) override { return {}; }
  uint64_t room() const override { return 0; }
  void retain(std::vector<BlockId>, const model::TierRetention&) override {}
  void forget_warm(const std::optional<std::string>&) override {}
  void load(model::TierLoad load, model::TierHandlers handlers) override {
    asked.push_back(std::move(load));
    handlers.done();
  }
  std::vector<model::TierLoad> asked;
};

TEST_F(PeerTierTest, WhatAPeerHasOnlyInPartIsLookedForBelowFromThereOn) {
  compute_there();
  const auto below = std::make_shared<EmptyTier>();
  tier_ = std::make_shared<PeerTier>(below, lines_.made(), log_);
  taking_ = make_engine(clock_);
  taking_->attach_tier(tier_);
  hand_over();
  GenerationRequest request = request_;
  request.kv_peer = k_worker;
  request.prompt[40] ^= 1;  // Of the third block, or of one behind it.
  const Said said = run(*taking_, request, {1, 2});
  const uint64_t taken = tier_->taken();
  ASSERT_GT(taken, 0u);
  ASSERT_EQ(below->asked.size(), 1u);
  const std::vector<model::TierLoad::Wanted>& rest = below->asked[0].blocks;
  ASSERT_FALSE(rest.empty());
  const auto block_tokens = static_cast<std::ptrdiff_t>(rest.front().tokens.size());
  const auto from = request.prompt.begin() + static_cast<std::ptrdiff_t>(taken) * block_tokens;
  EXPECT_EQ(rest.front().tokens, std::vector<int32_t>(from, from + block_tokens));
  request.kv_peer = 0;
  auto reference = make_engine(clock_);
  EXPECT_EQ(said.tokens, run(*reference, request, {1, 3}).tokens);
}

TEST(LineSpeed, ALineThatWasSlowIsTriedAgainByOneLoadAtATime) {
  using std::chrono::seconds;
  LineSpeed speed;
  EXPECT_TRUE(speed.promises(10e6, 1, seconds(100)));
  EXPECT_FALSE(speed.promises(200e6, 1, seconds(100)));
  for (int i = 0; i < 10; ++i) speed.observe(1e6, seconds(101));
  EXPECT_FALSE(speed.promises(10e6, 1, seconds(102)));
  EXPECT_TRUE(speed.promises(10e3, 1, seconds(102))) << "as fast as it is";
  EXPECT_FALSE(speed.promises(200e6, 1, seconds(120))) << "nor would a fast one";
  EXPECT_TRUE(speed.promises(10e6, 1, seconds(120)));
  EXPECT_FALSE(speed.promises(10e6, 1, seconds(120))) << "until it is known what became of that";
  speed.observe(90e6, seconds(121));
  EXPECT_TRUE(speed.promises(10e6, 1, seconds(121)));
}

TEST(BlockWire, QueriesAndBlocksAreReadBack) {
  model::CachedQuery query{.kv_namespace = sha256("ns"),
                           .tenant = "ann",
                           .cache_salt = "salt",
                           .tokens = {1, 2, -3},
                           .first = 5};
  const auto bytes = encode(query);
  const auto read = decode_query(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kv_namespace, query.kv_namespace);
  EXPECT_EQ(read->tenant, "ann");
  EXPECT_EQ(read->cache_salt, "salt");
  EXPECT_EQ(read->tokens, query.tokens);
  EXPECT_EQ(read->first, 5u);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_query(std::span(bytes).first(size))) << size;
  }
  const model::CachedBlock block{
      {}, std::vector<std::byte>(3, std::byte{1}), std::vector<std::byte>(5, std::byte{2})};
  const auto sent = encode(block);
  const auto view = decode_block(sent);
  ASSERT_TRUE(view);
  EXPECT_TRUE(std::equal(view->k.begin(), view->k.end(), block.k.begin(), block.k.end()));
  EXPECT_TRUE(std::equal(view->v.begin(), view->v.end(), block.v.begin(), block.v.end()));
  EXPECT_FALSE(decode_block(std::span(sent).first(2)));
  EXPECT_FALSE(decode_block(std::span(sent).first(6)));
}

}  // namespace
}  // namespace outrider::actors
