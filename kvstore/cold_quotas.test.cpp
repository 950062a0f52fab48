// What one tenant's writes may cost others, and what a disk that refuses writes may cost anybody.

#include <sys/resource.h>

#include <csignal>

#include "kvstore/faults.test.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers

class ColdQuotas : public Faults {
 protected:
  std::unique_ptr<ColdStore> open(const ColdStoreOptions& options) {
    auto store = std::make_unique<ColdStore>(options, surroundings(clock_));
    store->drain();
    return store;
  }
  static void put(ColdStore& store, uint64_t chain, uint32_t blocks, const char* tenant) {
    store.put(chain_blocks(chain, blocks, 64 << 10), {.tenant = tenant});
    store.drain();
  }

  /// While it lives no file of this process grows.
  class NoWrites {
   public:
    NoWrites() : before_(std::signal(SIGXFSZ, SIG_IGN)) {
      getrlimit(RLIMIT_FSIZE, &limit_);
      const rlimit small{1, limit_.rlim_max};
      setrlimit(RLIMIT_FSIZE, &small);
    }
    ~NoWrites() {
      setrlimit(RLIMIT_FSIZE, &limit_);
      std::signal(SIGXFSZ, before_);
    }

   private:
    void (*before_)(int);
    rlimit limit_{};
  };
};

constexpr uint64_t k_rounds = 60;  // of four blocks: twice the store's cap

TEST_F(ColdQuotas, WhoChurnsUnderAQuotaPushesNobodyOut) {
  for (const uint64_t quota : {4, 40}) {  // blocks; the files hold some hundred
    ColdStoreOptions options = small_options(store_path() + std::to_string(quota));
    options.quota_bytes["churns"] = quota * encoded_bytes(make_block(0, 0, 64 << 10));
    auto store = open(options);
    put(*store, 1, 8, "idle");
    uint64_t stored_late = 0;
    for (uint64_t round = 0; round < k_rounds; ++round) {
      put(*store, 100 + round, 4, "churns");
      ASSERT_EQ(store->match(k_test_ns, chain_ids(1, 8)), 8u) << quota << ", round " << round;
      if (round + 20 < k_rounds) continue;
      stored_late += store->match(k_test_ns, chain_ids(100 + round, 4));
    }
    EXPECT_EQ(load(*store, chain_request(1, 8, 64 << 10)).blocks.size(), 8u);
    EXPECT_GT(stored_late, 60u) << quota << ": nor is it refused more than now and then";
    const auto counters = store->stats().counters;
    EXPECT_GT(counters.rewritten_bytes, 0u);
    EXPECT_LT(counters.rewritten_bytes, 4 * counters.stored_bytes);
  }
}

constexpr uint32_t k_fits = 100;  // blocks in the files, four in each

TEST_F(ColdQuotas, WhoChurnsBesideAFullStoreWaitsRatherThanMoveItRoundAndRound) {
  ColdStoreOptions options = small_options(store_path());
  options.quota_bytes["churns"] = 4 * encoded_bytes(make_block(0, 0, 64 << 10));
  auto store = open(options);
  put(*store, 1, k_fits + 16, "idle");
  const auto kept = [&] {
    uint32_t blocks = 0;
    for (const BlockId& id : chain_ids(1, k_fits + 16)) {
      blocks += store->match(k_test_ns, {&id, 1}) != 0 ? 1 : 0;
    }
    return blocks;
  };
  const uint64_t before = store->stats().counters.stored_blocks;
  const uint32_t there = kept();
  ASSERT_GE(there, k_fits - 4);
  for (uint64_t round = 0; round < k_rounds; ++round) put(*store, 100 + round, 4, "churns");
  const auto counters = store->stats().counters;
  const uint64_t record = encoded_bytes(make_block(0, 0, 64 << 10));
  EXPECT_LE(counters.rewritten_bytes, 4 * record * (counters.stored_blocks - before));
  EXPECT_GT(counters.skipped[Skip::dead_bytes], 0u);
  EXPECT_GE(kept() + 8, there) << "its quota, in whole files, is its own";
}

TEST_F(ColdQuotas, WhoChurnsGetsPastOthersThatFallOutNext) {
  ColdStoreOptions options = small_options(store_path());
  options.quota_bytes["churns"] = 4 * encoded_bytes(make_block(0, 0, 64 << 10));
  auto store = open(options);
  put(*store, 1, 50, "idle");
  put(*store, 2, k_fits - 60, "gone");
  store->drop(chain_ids(2, k_fits - 60));
  uint64_t stored_late = 0;
  for (uint64_t round = 0; round < k_rounds; ++round) {
    store->put(chain_blocks(100 + round, 1, 64 << 10), {.tenant = "churns"});
    store->drain();
    ASSERT_EQ(store->match(k_test_ns, chain_ids(1, 50)), 50u) << "round " << round;
    if (round + 20 < k_rounds) continue;
    stored_late += store->match(k_test_ns, chain_ids(100 + round, 1));
  }
  EXPECT_GT(stored_late, 15u);
}

TEST_F(ColdQuotas, NothingMovesForBlocksThatDoNotComeIn) {
  ColdStoreOptions options = small_options(store_path());
  options.quota_bytes["churns"] = 4 * encoded_bytes(make_block(0, 0, 64 << 10));
  auto store = open(options);
  put(*store, 1, 50, "idle");  // falls out before long
  put(*store, 2, k_fits - 64, "gone");
  store->drop(chain_ids(2, k_fits - 64));
  put(*store, 200, 4, "churns");
  const auto before = store->stats().counters;
  for (uint64_t chain = 300; chain < 320; ++chain) {
    store->put({make_block(chain, 3, 64 << 10)}, {.tenant = "churns"});
    store->drain();
  }
  std::vector<Block> rest = chain_blocks(200, 24, 64 << 10);
  rest.erase(rest.begin(), rest.begin() + 4);
  store->put(std::move(rest), {.tenant = "churns"});
  store->drain();
  const auto counters = store->stats().counters;
  EXPECT_EQ(counters.skipped[Skip::orphan] - before.skipped[Skip::orphan], 20u);
  EXPECT_EQ(counters.skipped[Skip::over_quota] - before.skipped[Skip::over_quota], 20u);
  EXPECT_EQ(counters.rewritten_bytes, before.rewritten_bytes);
}

TEST_F(ColdQuotas, WhoUnpinsPushesNobodyOutEither) {
  for (const bool full : {false, true}) {
    SCOPED_TRACE(full);
    ColdStoreOptions options = small_options(store_path() + (full ? "full" : ""));
    options.quota_bytes["churns"] = 4 * encoded_bytes(make_block(0, 0, 64 << 10));
    auto store = open(options);
    put(*store, 1, 8, "idle");
    if (full) put(*store, 2, k_fits - 20, "idle");
    uint32_t refused = 0, unpinned = 0;
    for (uint64_t round = 0; round < k_rounds; ++round) {
      store->put(chain_blocks(100 + round, 3, 64 << 10), {.tenant = "churns", .pin = true});
      const PinSummary summary = unpin(*store, chain_ids(100 + round, 3));
      refused += summary.refused;
      unpinned += summary.changed;
      ASSERT_EQ(store->match(k_test_ns, chain_ids(1, 8)), 8u) << "round " << round;
    }
    EXPECT_EQ(refused > 0, full) << "they stay pinned where nothing may move";
    EXPECT_GT(unpinned, full ? 3u : 150u);
  }
}

TEST_F(ColdQuotas, WhoIsAloneMayChurn) {
  ColdStoreOptions options = small_options(store_path());
  options.default_quota_bytes = 4 * encoded_bytes(make_block(0, 0, 64 << 10));
  auto store = open(options);
  for (uint64_t round = 0; round < k_rounds; ++round) put(*store, round, 4, "");
  EXPECT_EQ(store->stats().counters.stored_blocks, 4 * k_rounds);
}

TEST_F(ColdQuotas, ABlockForWhichNoRoomCouldBeWrittenWasNotOverItsQuota) {
  ColdStoreOptions options = small_options(store_path());
  options.quota_bytes["small"] = 2 * encoded_bytes(make_block(0, 0));
  auto store = open(options);
  store->put(chain_blocks(9, 1), {.tenant = "small"});
  store->drain();
  {
    const NoWrites disk;
    store->put(chain_blocks(1, 2), {.tenant = "small"});
    store->put(chain_blocks(2, 1), {.tenant = "small"});
    store->drain();
  }
  const auto skipped = store->stats().counters.skipped;
  EXPECT_EQ(skipped[Skip::over_quota], 0u);
  EXPECT_EQ(skipped[Skip::write_failed], 3u);
}

TEST_F(ColdQuotas, TimesToLiveOutliveAWriteThatFails) {
  auto store = open(small_options(store_path()));
  store->put(chain_blocks(1, 1), {.expires_at = clock_.wall_s() + 100});
  store->drain();
  {
    const NoWrites disk;
    store->keep_until(chain_ids(1, 1), clock_.wall_s() + 1000);
    store->drain();
  }
  EXPECT_NE(store->stats().outage, Outage::none);
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(*store);
  clock_.advance(std::chrono::seconds(200));
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 1)), 1u);
  store.reset();
  store = open(small_options(store_path()));
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 1)), 1u);
}

}  // namespace
}  // namespace outrider::kvstore
