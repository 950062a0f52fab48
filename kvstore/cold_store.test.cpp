#include "kvstore/cold_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <set>

#include "kvstore/cold_open.hpp"
#include "kvstore/fixture.test.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers

class ColdStoreTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  TestClock clock_;

  std::unique_ptr<ColdStore> open(ColdStoreOptions options, StoreEvents events = {}) {
    auto store =
        std::make_unique<ColdStore>(std::move(options), surroundings(clock_), std::move(events));
    store->drain();
    return store;
  }
  std::unique_ptr<ColdStore> open() { return open(small_options(directory_.path())); }

  static void expect_whole_chain(ColdStore& store, uint64_t chain, uint32_t blocks,
                                 size_t bytes = 4096) {
    const LoadOutcome out = load(store, chain_request(chain, blocks, bytes));
    EXPECT_EQ(out.summary.stopped, Miss::none) << to_string(out.summary.stopped);
    ASSERT_EQ(out.blocks.size(), blocks);
    for (uint32_t i = 0; i < blocks; ++i) {
      EXPECT_TRUE(same_content(out.blocks[i].record, make_block(chain, i, bytes))) << i;
    }
  }
};

TEST_F(ColdStoreTest, AChainIsFoundAgainAfterARestart) {
  auto store = open();
  store->put(chain_blocks(1, 20), {});
  store->drain();
  expect_whole_chain(*store, 1, 20);
  const std::string uuid = store->stats().store_uuid;
  store.reset();
  store = open();
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 25)), 20u);
  expect_whole_chain(*store, 1, 20);
  const ColdStats stats = store->stats();
  EXPECT_EQ(stats.store_uuid, uuid);
  EXPECT_EQ(stats.counters.unclean_starts, 0u);
  EXPECT_EQ(stats.rows, 20u);
}

TEST_F(ColdStoreTest, ALoadGivesTheLongestPrefixAndSaysWhyItEnds) {
  auto store = open();
  std::vector<Block> blocks = chain_blocks(1, 6);
  blocks.erase(blocks.begin() + 3);
  store->put(std::move(blocks), {});
  store->drain();
  const LoadOutcome out = load(*store, chain_request(1, 6));
  EXPECT_EQ(out.summary.stopped, Miss::partial);
  EXPECT_EQ(out.summary.matched, 3u);
  EXPECT_EQ(out.blocks.size(), 3u);
  EXPECT_EQ(load(*store, chain_request(2, 1)).summary.stopped, Miss::absent) << "nothing came";
  EXPECT_EQ(store->stats().counters.loads[Miss::partial], 1u);
  EXPECT_EQ(store->stats().counters.loads[Miss::absent], 1u);
}

TEST_F(ColdStoreTest, LoadsThatBringBlocksAreCountedByHowLongTheyTook) {
  using namespace std::chrono_literals;
  auto store = open();
  store->put(chain_blocks(1, 1), {});
  store->drain();
  for (const Duration took : {Duration(0), Duration(5ms), Duration(60s)}) {
    std::promise<void> done;
    store->get(chain_request(1, 1), {[&](std::vector<LoadedBlock>) { clock_.advance(took); },
                                     [&](const LoadSummary&) { done.set_value(); }});
    done.get_future().wait();
  }
  load(*store, chain_request(2, 1));  // brings none
  const ColdCounters counters = store->stats().counters;
  const auto& ends = k_store_load_seconds;
  const auto third = static_cast<size_t>(std::find(ends.begin(), ends.end(), 0.005) - ends.begin());
  for (size_t i = 0; i < counters.load_times.size(); ++i) {
    const bool counted = i == 0 || i == third || i == ends.size();
    EXPECT_EQ(counters.load_times[i], counted ? 1u : 0u) << i;
  }
  EXPECT_EQ(counters.load_ns, 60'005'000'000u);
}

TEST_F(ColdStoreTest, BlocksAreAnnouncedOnlyWhenDurable) {
  std::mutex mutex;
  std::set<BlockId> announced;
  StoreEvents events;
  events.published = [&](std::span<const BlockId> ids) {
    const std::lock_guard lock(mutex);
    announced.insert(ids.begin(), ids.end());
  };
  auto store = open(small_options(directory_.path()), events);
  store->put(chain_blocks(1, 3), {});
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 3)), 0u);
  store->drain();
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 3)), 3u);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(announced.size(), 3u);
}

TEST_F(ColdStoreTest, ARemovalIsToldAfterTheAnnouncementThatItOvertook) {
  std::mutex mutex;
  std::vector<std::string> told;
  std::promise<void> entered, leave;
  StoreEvents events;
  events.published = [&](std::span<const BlockId>) {
    entered.set_value();
    leave.get_future().wait();
    const std::lock_guard lock(mutex);
    told.push_back("published");
  };
  events.removed = [&](std::span<const BlockId>) {
    const std::lock_guard lock(mutex);
    told.push_back("removed");
  };
  auto store = open(small_options(directory_.path()), events);
  store->put(chain_blocks(1, 1), {});
  auto drained = std::async(std::launch::async, [&] { store->drain(); });
  entered.get_future().wait();
  LoadRequest request = chain_request(1, 1);
  request.chain[0].tokens[5] ^= 1;
  EXPECT_EQ(load(*store, std::move(request)).summary.stopped, Miss::wrong_tokens);
  leave.set_value();
  drained.wait();
  const std::lock_guard lock(mutex);
  EXPECT_EQ(told, (std::vector<std::string>{"published", "removed"}));
}

TEST_F(ColdStoreTest, UsesReachTheDiskWithoutAnythingElseToWrite) {
  ColdStoreOptions options = small_options(directory_.path());
  options.use_age_ms = 1'000;
  auto store = open(options);
  store->put(chain_blocks(1, 1), {});
  store->drain();
  clock_.advance(std::chrono::seconds(2));
  store->touch(chain_ids(1, 1));
  for (int i = 0; i < 2; ++i) pin(*store, {});  // the writer has looked in between
  const auto opened = Database::open(database_directory(options.directory), {.read_only = true});
  ASSERT_TRUE(opened.database) << opened.error.message;
  uint32_t hits = 0;
  const auto count = [&](const BlockId&, const Row& row) { hits += row.hits; };
  EXPECT_TRUE(opened.database->each_row(count, [](std::string_view) {}));
  EXPECT_EQ(hits, 1u);
}

TEST_F(ColdStoreTest, OtherTokensUnderTheSameIdAreAMissAndTheRowGoes) {
  auto store = open();
  store->put(chain_blocks(1, 4), {});
  store->drain();
  LoadRequest request = chain_request(1, 4);
  request.chain[2].tokens[5] ^= 1;
  const LoadOutcome out = load(*store, std::move(request));
  EXPECT_EQ(out.summary.stopped, Miss::wrong_tokens);
  EXPECT_EQ(out.blocks.size(), 2u);
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 4)), 2u);
}

TEST_F(ColdStoreTest, AnotherModelsNamespaceIsAMiss) {
  auto store = open();
  store->put(chain_blocks(1, 4), {});
  store->drain();
  LoadRequest request = chain_request(1, 4);
  request.ns = sha256("another model");
  EXPECT_EQ(load(*store, request).summary.stopped, Miss::other_namespace);
  // Namespaces that share the eight bytes that the index keeps: the record tells.
  request.ns = k_test_ns;
  request.ns[31] ^= 1;
  const LoadOutcome out = load(*store, request);
  EXPECT_EQ(out.summary.stopped, Miss::other_namespace);
  EXPECT_TRUE(out.blocks.empty());
}

TEST_F(ColdStoreTest, TouchWantsWhatIsUsedTwiceAndNotYetStored) {
  auto store = open();
  const auto chain = chain_ids(1, 3);
  EXPECT_EQ(store->touch(chain), std::vector<bool>(3, false));
  EXPECT_EQ(store->touch(chain), std::vector<bool>(3, true));
  store->put({make_block(1, 0)}, {});
  EXPECT_EQ(store->touch(chain), (std::vector<bool>{false, true, true})) << "on its way";
  store->drain();
  EXPECT_EQ(store->touch(chain), (std::vector<bool>{false, true, true})) << "stored";
  EXPECT_EQ(store->touch(chain_ids(2, 2), true), std::vector<bool>(2, true)) << "hinted";
}

TEST_F(ColdStoreTest, AFullQueueDropsTheNewestAndCountsIt) {
  ColdStoreOptions options = small_options(directory_.path());
  options.queue_bytes = encoded_bytes(make_block(0, 0)) * 2;
  auto store = open(options);
  // The thread is held inside a callback while the queue fills.
  std::promise<void> entered, leave;
  store->pin({}, 0, [&](PinSummary) {
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();
  store->put(chain_blocks(1, 5), {});
  leave.set_value();
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped[Skip::queue_full], 3u);
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 5)), 2u);
  store->put(chain_blocks(1, 5), {});
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped[Skip::duplicate], 2u);
}

TEST_F(ColdStoreTest, ATenantOverItsQuotaLosesItsOwnOldest) {
  ColdStoreOptions options = small_options(directory_.path());
  const uint64_t record = encoded_bytes(make_block(0, 0));
  options.quota_bytes["small"] = 4 * record;
  auto store = open(options);
  store->put(chain_blocks(1, 10), {.tenant = "large"});
  store->put(chain_blocks(2, 3), {.tenant = "small"});
  store->put(chain_blocks(3, 3), {.tenant = "small"});
  store->drain();
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 10)), 10u);
  EXPECT_EQ(store->match(k_test_ns, chain_ids(3, 3)), 3u);
  const ColdStats stats = store->stats();
  EXPECT_EQ(stats.rows, 14u);
  EXPECT_EQ(stats.counters.removed[Removal::quota], 2u);
  store->put({make_block(4, 0, 100'000)}, {.tenant = "small"});
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped[Skip::over_quota], 1u) << "larger than all of it";
  for (const TenantUse& tenant : store->stats().tenants) {
    const bool small = tenant.tenant == tenant_number("small");
    EXPECT_EQ(tenant.over_quota, small ? 1u : 0u);
    EXPECT_EQ(tenant.name, small ? std::optional<std::string>("small") : std::nullopt);
  }
}

/// What a store calls those that have blocks in it.
std::set<std::string> stored_names(const ColdStore& store) {
  std::set<std::string> names;
  for (const TenantUse& tenant : store.stats().tenants) {
    if (tenant.rows != 0) names.insert(tenant.stored_name.value_or("?"));
  }
  return names;
}

TEST_F(ColdStoreTest, KnowsTheNamesOfItsTenantsAfterARestartToo) {
  using Names = std::set<std::string>;
  auto store = open();
  store->put(chain_blocks(1, 2), {.tenant = "ann"});
  store->put(chain_blocks(2, 2), {});
  store->drain();
  EXPECT_EQ(stored_names(*store), (Names{"", "ann"}));
  store.reset();
  store = open();
  EXPECT_EQ(stored_names(*store), (Names{"", "ann"}));
  store->put(chain_blocks(3, 2), {.tenant = "bob"});
  store->drain();
  EXPECT_EQ(stored_names(*store), (Names{"", "ann", "bob"}));
}

TEST_F(ColdStoreTest, ABlockWithoutTheOneBeforeItIsNotStored) {
  auto store = open();
  store->put({make_block(1, 0), make_block(1, 2), make_block(1, 3), make_block(1, 1)}, {});
  store->drain();
  EXPECT_EQ(store->stats().rows, 2u);
  EXPECT_EQ(store->stats().counters.skipped[Skip::orphan], 2u);
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 4)), 2u);
}

/// What makes room is the end of a chain, however its blocks came and were used.
TEST_F(ColdStoreTest, WhatAQuotaLeavesOfAChainCanBeMatched) {
  const uint64_t record = encoded_bytes(make_block(0, 0));
  ColdStoreOptions options = small_options(directory_.path());
  options.quota_bytes["small"] = 4 * record;
  auto store = open(options);
  store->put(chain_blocks(1, 6), {.tenant = "small"});
  store->drain();
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 6)), 4u) << "the head that fits";
  EXPECT_EQ(store->stats().counters.skipped[Skip::over_quota], 2u);
  EXPECT_EQ(store->stats().counters.removed[Removal::quota], 0u);
  const uint64_t stored = store->stats().counters.stored_bytes;
  store->put(chain_blocks(1, 6), {.tenant = "small"});
  store->drain();
  EXPECT_EQ(store->stats().counters.stored_bytes, stored) << "nothing is written again";
  store->put(chain_blocks(2, 1), {.tenant = "small"});
  store->drain();
  EXPECT_EQ(store->match(k_test_ns, chain_ids(2, 1)), 1u);
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 6)), 3u);
}

TEST_F(ColdStoreTest, AConversationThatGrowsOverItsQuotaKeepsItsBeginning) {
  const uint64_t record = encoded_bytes(make_block(0, 0));
  ColdStoreOptions options = small_options(directory_.path());
  options.quota_bytes["small"] = 6 * record;
  auto store = open(options);
  store->put(chain_blocks(1, 4), {.tenant = "small"});
  store->drain();
  store->put(chain_blocks(1, 10), {.tenant = "small"});
  store->drain();
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 10)), 6u);
  EXPECT_EQ(store->stats().counters.removed[Removal::quota], 0u);
  EXPECT_EQ(store->stats().counters.stored_blocks, 6u);
}

TEST_F(ColdStoreTest, APinThatEndedMakesRoomForTheNext) {
  ColdStoreOptions options = small_options(directory_.path());
  auto store = open(options);
  const auto pin_all = [&](uint64_t chain, const char* tenant) {
    store->put(chain_blocks(chain, 200),
               {.tenant = tenant, .pin = true, .expires_at = clock_.wall_s() + 10});
    store->drain();
    return store->stats().pinned_bytes;
  };
  const uint64_t share = pin_all(1, "first");
  EXPECT_GT(share, 0u);
  EXPECT_GT(store->stats().counters.refused_pins, 0u) << "there was no room for all";
  clock_.advance(std::chrono::seconds(11));
  EXPECT_EQ(pin_all(2, "first"), share);
}

TEST_F(ColdStoreTest, ExpiredBlocksAreMissesAndLeave) {
  auto store = open();
  store->put(chain_blocks(1, 3), {.expires_at = clock_.wall_s() + 10});
  store->put(chain_blocks(2, 3), {.expires_at = clock_.wall_s() + 10});
  store->drain();
  store->keep_until(chain_ids(2, 3), clock_.wall_s() + 1000);
  expect_whole_chain(*store, 1, 3);
  clock_.advance(std::chrono::seconds(11));
  EXPECT_EQ(load(*store, chain_request(1, 3)).summary.stopped, Miss::expired);
  expect_whole_chain(*store, 2, 3);
  store->drain();
  EXPECT_EQ(store->stats().rows, 3u);
  store.reset();
  store = open();
  expect_whole_chain(*store, 2, 3);
}

TEST_F(ColdStoreTest, PinnedBlocksOutliveTheFifoAndRestarts) {
  auto store = open();
  store->put(chain_blocks(1, 4), {});
  store->put(chain_blocks(2, 2), {.pin = true});
  store->drain();
  const PinSummary summary = pin(*store, chain_ids(1, 5));
  EXPECT_EQ(summary.changed, 4u);
  EXPECT_EQ(summary.absent, 1u);
  for (uint64_t chain = 100; chain < 110; ++chain) {
    store->put(chain_blocks(chain, 16, 64 << 10), {});
    store->drain();
  }
  EXPECT_GT(store->stats().counters.removed[Removal::aged_out], 0u);
  expect_whole_chain(*store, 1, 4);
  expect_whole_chain(*store, 2, 2);
  store.reset();
  store = open();
  expect_whole_chain(*store, 1, 4);
  EXPECT_EQ(unpin(*store, chain_ids(1, 4)).changed, 4u);
  expect_whole_chain(*store, 1, 4);
  EXPECT_EQ(store->stats().pinned_bytes, 2 * encoded_bytes(make_block(0, 0)));
  store.reset();
  store = open();
  expect_whole_chain(*store, 1, 4);
}

TEST_F(ColdStoreTest, BlocksBeyondTheShareOfPinsAreStoredWithout) {
  auto store = open();
  const auto fit =
      static_cast<uint32_t>((uint64_t{8} << 20) / 10 / encoded_bytes(make_block(0, 0, 64 << 10)));
  store->put(chain_blocks(1, 2 * fit, 64 << 10), {.tenant = "a", .pin = true});
  store->put(chain_blocks(2, 2 * fit, 64 << 10), {.tenant = "b", .pin = true});
  store->drain();
  const ColdStats stats = store->stats();
  const uint64_t pinned = stats.pinned_bytes / encoded_bytes(make_block(0, 0, 64 << 10));
  EXPECT_LE(pinned, fit);
  EXPECT_GE(pinned, fit / 2);
  EXPECT_EQ(stats.counters.refused_pins, 4 * fit - pinned);
  EXPECT_EQ(stats.rows, 4 * fit);
}

TEST_F(ColdStoreTest, AHotBlockNearTheEndOfTheFifoIsWrittenAgain) {
  auto store = open();
  store->put(chain_blocks(1, 4, 64 << 10), {});
  store->drain();
  for (uint64_t chain = 100; chain < 116; ++chain) {
    store->put(chain_blocks(chain, 16, 64 << 10), {});
    store->drain();
    expect_whole_chain(*store, 1, 4, 64 << 10);
    store->drain();
  }
  const ColdStats stats = store->stats();
  EXPECT_GT(stats.counters.rewritten_bytes, 0u);
  EXPECT_GT(stats.counters.removed[Removal::aged_out], 100u) << "the others went";
}

TEST_F(ColdStoreTest, DiskUseStaysBelowCapAndBuffersThroughALongFill) {
  const ColdStoreOptions options = small_options(directory_.path());
  auto store = open(options);
  // Two flushes, the log and small families' buffers come on top.
  const uint64_t allowance = 2 * options.buffer_bytes + (uint64_t{1} << 20);
  uint64_t highest = 0;
  for (uint64_t chain = 0; chain < 60; ++chain) {
    store->put(chain_blocks(chain, 8, 64 << 10), {});
    store->drain();
    highest = std::max(highest, disk_bytes(directory_.path()));
  }
  EXPECT_LE(highest, options.cap_bytes + allowance);
  const ColdStats stats = store->stats();
  EXPECT_GT(stats.counters.stored_bytes, 3 * options.cap_bytes);
  EXPECT_LE(static_cast<double>(stats.counters.payload_written_bytes),
            1.2 * static_cast<double>(stats.counters.stored_bytes));
}

TEST_F(ColdStoreTest, TheGateRefusesWhatIsFasterToCompute) {
  auto store = open();
  store->put(chain_blocks(1, 4), {});
  store->drain();
  LoadRequest request = chain_request(1, 4);
  request.recompute = std::chrono::microseconds(1);
  EXPECT_EQ(load(*store, request).summary.stopped, Miss::gated);
  request.recompute = std::chrono::seconds(10);
  EXPECT_EQ(load(*store, request).blocks.size(), 4u);
}

/// A millisecond passes between any two looks at it.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::milliseconds(++ticks_); }

 private:
  mutable std::atomic<int64_t> ticks_{1'000'000};
};

TEST_F(ColdStoreTest, AClosedGateMeasuresAgainSoThatItCanOpen) {
  const TickingClock clock;
  ColdStore store(small_options(directory_.path()), {clock});
  store.put(chain_blocks(1, 4), {});
  store.drain();
  const ReadSpeed before = store.stats().speed;
  LoadRequest request = chain_request(1, 4);
  request.recompute = std::chrono::microseconds(1);
  EXPECT_EQ(load(store, request).summary.stopped, Miss::gated);
  store.close();  // finishes what was read for nobody
  const ColdStats stats = store.stats();
  EXPECT_NE(stats.speed.bytes_per_second, before.bytes_per_second);
  EXPECT_EQ(stats.counters.loads.total(), 1u) << "it counts as no load";
}

TEST_F(ColdStoreTest, StopRulesEndALoadBeforeItReads) {
  auto store = open();
  store->put(chain_blocks(1, 4), {});
  store->drain();
  LoadRequest request = chain_request(1, 4);
  request.timeout = Duration(0);
  EXPECT_EQ(load(*store, request).summary.stopped, Miss::timed_out);
  request.timeout.reset();
  request.cancelled = std::make_shared<const std::atomic<bool>>(true);
  EXPECT_EQ(load(*store, request).summary.stopped, Miss::cancelled);
}

TEST_F(ColdStoreTest, AClosedStoreAnswersWithMissesAndSkips) {
  auto store = open();
  store->put(chain_blocks(1, 4), {});
  store->close();
  EXPECT_EQ(load(*store, chain_request(1, 4)).summary.stopped, Miss::unavailable);
  store->put(chain_blocks(2, 1), {});
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped[Skip::unavailable], 1u);
  EXPECT_EQ(store->stats().outage, Outage::closed);
  store = open();
  expect_whole_chain(*store, 1, 4);
}

TEST_F(ColdStoreTest, LoadsAndWritesFromManyThreadsGiveOnlyWholePrefixes) {
  auto store = open();
  std::vector<std::thread> threads;
  std::atomic<uint32_t> wrong{0};
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 12; ++i) {
        const uint64_t chain = (t + i) % 6;
        store->touch(chain_ids(chain, 8));
        store->put(chain_blocks(chain, 8), {.tenant = t % 2 == 0 ? "a" : "b"});
        const LoadOutcome out = load(*store, chain_request(chain, 8));
        for (uint32_t b = 0; b < out.blocks.size(); ++b) {
          if (!same_content(out.blocks[b].record, make_block(chain, b))) ++wrong;
        }
        if (i % 4 == 0) store->drain();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  store->drain();
  EXPECT_EQ(wrong, 0u);
  for (uint64_t chain = 0; chain < 6; ++chain) expect_whole_chain(*store, chain, 8);
}

}  // namespace
}  // namespace outrider::kvstore
