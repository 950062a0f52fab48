// Pins, drops and times to live beside blocks that are still on their way, in any order: what the
// index says holds on disk too, after a restart as before it.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "kvstore/cold_open.hpp"
#include "kvstore/cold_store.hpp"
#include "kvstore/database.hpp"
#include "kvstore/fixture.test.hpp"
#include "kvstore/inspect.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers

class ColdChanges : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  TestClock clock_;

  std::unique_ptr<ColdStore> open(const ColdStoreOptions& options) {
    auto store = std::make_unique<ColdStore>(options, surroundings(clock_));
    store->drain();
    return store;
  }
  std::unique_ptr<ColdStore> open() { return open(small_options(directory_.path())); }

  /// Holds the writer inside a callback, so that what is called meanwhile waits in its queue.
  class Hold {
   public:
    explicit Hold(ColdStore& store) : store_(store) {
      std::promise<void> entered;
      store.pin({}, 0, [&, leave = leave_.get_future().share()](PinSummary) {
        entered.set_value();
        leave.wait();
      });
      entered.get_future().wait();
    }
    /// Returns when all that was called meanwhile is done.
    void end() {
      leave_.set_value();
      store_.drain();
    }

   private:
    ColdStore& store_;
    std::promise<void> leave_;
  };

  /// Has its value once that is done.
  static std::shared_ptr<std::optional<Result<uint64_t>>> drop_all(
      ColdStore& store, const std::optional<std::string>& tenant) {
    auto out = std::make_shared<std::optional<Result<uint64_t>>>();
    store.drop_all(tenant, [out](Result<uint64_t> dropped) { out->emplace(std::move(dropped)); });
    return out;
  }

  size_t match(const ColdStore& store, uint64_t chain, uint32_t blocks) const {
    return store.match(k_test_ns, chain_ids(chain, blocks));
  }
  /// Every row has its record and every pinned record its row.
  void expect_sound(uint64_t records) {
    const auto report = inspect(directory_.path(), {.verify = true});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->good_records, records);
    EXPECT_EQ(report->missing_records + report->corrupt_records + report->broken_rows, 0u);
    EXPECT_EQ(report->orphans, 0u);
  }
};

TEST_F(ColdChanges, ABlockThatIsPinnedAfterItWasDroppedStays) {
  auto store = open();
  store->put(chain_blocks(1, 2), {.pin = true});
  store->drain();
  Hold hold(*store);
  store->put(chain_blocks(2, 1), {});  // waits for its flush; so do the rows that are to go
  store->drop(chain_ids(1, 2));
  store->put(chain_blocks(1, 2), {.pin = true});
  hold.end();
  EXPECT_EQ(load(*store, chain_request(1, 2)).blocks.size(), 2u);
  store.reset();
  store = open();
  EXPECT_EQ(load(*store, chain_request(1, 2)).blocks.size(), 2u);
  store.reset();
  expect_sound(3);
}

TEST_F(ColdChanges, ATenantDropsAllItHasAndNothingOfOthers) {
  auto store = open();
  store->put(chain_blocks(1, 2), {.tenant = "ann"});
  store->put(chain_blocks(2, 2), {.tenant = "ann", .pin = true});
  store->put(chain_blocks(3, 3), {.tenant = "bob", .pin = true});
  store->put(chain_blocks(4, 3), {.tenant = "bob"});
  store->drain();
  Hold hold(*store);
  store->put(chain_blocks(5, 2), {.tenant = "ann"});
  const auto dropped = drop_all(*store, "ann");
  store->put(chain_blocks(6, 1), {.tenant = "ann"});
  hold.end();
  EXPECT_EQ((*dropped)->value(), 6u);
  for (const uint64_t chain : {1, 2, 5}) EXPECT_EQ(match(*store, chain, 2), 0u) << chain;
  for (const uint64_t chain : {3, 4}) EXPECT_EQ(match(*store, chain, 3), 3u) << chain;
  EXPECT_EQ(match(*store, 6, 1), 1u) << "it came later";
  store.reset();
  expect_sound(7);
  store = open();
  for (const uint64_t chain : {1, 2, 5}) EXPECT_EQ(match(*store, chain, 2), 0u) << chain;
  const auto all = drop_all(*store, {});
  store->drain();
  EXPECT_EQ((*all)->value(), 7u);
  EXPECT_EQ(store->stats().rows, 0u);
  EXPECT_EQ(store->stats().counters.removed[Removal::dropped], 7u);
  store->close();
  EXPECT_EQ((*drop_all(*store, {}))->error().code, ErrorCode::unavailable);
}

TEST_F(ColdChanges, ATimeToLiveSetBeforeAPinDoesNotUndoIt) {
  auto store = open();
  store->put(chain_blocks(1, 2), {});
  store->drain();
  Hold hold(*store);
  store->put(chain_blocks(2, 1), {});
  store->keep_until(chain_ids(1, 2), clock_.wall_s() + 1000);
  store->pin(chain_ids(1, 2), 0);
  hold.end();
  store.reset();
  store = open();
  EXPECT_EQ(store->stats().pinned_bytes, 2 * encoded_bytes(make_block(1, 0)));
  store.reset();
  expect_sound(3);
}

TEST_F(ColdChanges, ABlockOnItsWayTakesItsNewTimeToLive) {
  auto store = open();
  Hold hold(*store);
  store->put(chain_blocks(1, 2), {.expires_at = clock_.wall_s() + 5});
  store->keep_until(chain_ids(1, 2), clock_.wall_s() + 10);
  hold.end();
  clock_.advance(std::chrono::seconds(6));
  EXPECT_EQ(match(*store, 1, 2), 2u);
  store.reset();
  clock_.advance(std::chrono::seconds(5));
  store = open();
  EXPECT_EQ(match(*store, 1, 2), 0u);
  EXPECT_EQ(store->stats().counters.removed[Removal::expired], 2u);
}

TEST_F(ColdChanges, ABlockThatIsDroppedOnItsWayDoesNotCome) {
  auto store = open();
  Hold hold(*store);
  store->put(chain_blocks(1, 2), {});
  store->put(chain_blocks(2, 2), {.pin = true});
  store->drop(chain_ids(1, 2));
  store->drop(chain_ids(2, 2));
  hold.end();
  EXPECT_EQ(match(*store, 1, 2) + match(*store, 2, 2), 0u);
  EXPECT_EQ(store->stats().counters.removed[Removal::dropped], 4u);
  store.reset();
  EXPECT_EQ(open()->stats().rows, 0u);
  expect_sound(0);
}

TEST_F(ColdChanges, ManyTimesToLiveDoNotFillMemory) {
  ColdStoreOptions options = small_options(directory_.path());
  options.queue_bytes = 10 * sizeof(BlockId);
  auto store = open(options);
  Hold hold(*store);
  for (int i = 0; i < 100; ++i) store->keep_until(chain_ids(1, 2), clock_.wall_s() + i);
  EXPECT_EQ(store->stats().counters.dropped_jobs, 95u);
  hold.end();
}

TEST_F(ColdChanges, ARefusedPinLeavesTheBlockAsItWas) {
  ColdStoreOptions options = small_options(directory_.path());
  options.pinned_share = 0;
  auto store = open(options);
  store->put(chain_blocks(1, 2), {});
  store->drain();
  EXPECT_EQ(pin(*store, chain_ids(1, 2), clock_.wall_s() + 10).refused, 2u);
  clock_.advance(std::chrono::seconds(11));
  EXPECT_EQ(match(*store, 1, 2), 2u);
}

TEST_F(ColdChanges, ASmallerQuotaTakesTheEndsOfChainsAndNoPins) {
  auto store = open();
  store->put(chain_blocks(1, 3), {.pin = true});
  clock_.advance(std::chrono::seconds(1));
  store->put(chain_blocks(2, 4), {});
  store->drain();
  store.reset();
  ColdStoreOptions options = small_options(directory_.path());
  const uint64_t record = encoded_bytes(make_block(1, 0));
  options.quota_bytes[""] = 5 * record;
  store = open(options);
  EXPECT_EQ(match(*store, 1, 3), 3u);
  EXPECT_EQ(match(*store, 2, 4), 2u);
  EXPECT_EQ(store->stats().counters.removed[Removal::quota], 2u);
  store.reset();
  options.quota_bytes[""] = 2 * record;
  store = open(options);
  EXPECT_EQ(match(*store, 1, 3), 3u);
  EXPECT_EQ(match(*store, 2, 4), 0u);
  store.reset();
  expect_sound(3);
}

/// Of several requests for one block the one that keeps it longest holds, in whichever order.
TEST_F(ColdChanges, ARetentionIsNeverShortened) {
  auto store = open();
  const int64_t now = clock_.wall_s();
  store->put(chain_blocks(1, 1), {.pin = true});
  store->put(chain_blocks(2, 1), {.pin = true, .expires_at = now + 100});
  store->put(chain_blocks(3, 1), {.expires_at = now + 100});
  store->put(chain_blocks(4, 1), {});
  store->drain();
  for (uint64_t chain = 1; chain <= 4; ++chain) store->keep_until(chain_ids(chain, 1), now + 1);
  for (uint64_t chain = 1; chain <= 3; ++chain) pin(*store, chain_ids(chain, 1), now + 1);
  store->drain();
  const auto expect_here = [&](std::vector<uint64_t> chains) {
    for (uint64_t chain = 1; chain <= 4; ++chain) {
      EXPECT_EQ(match(*store, chain, 1), std::count(chains.begin(), chains.end(), chain)) << chain;
    }
  };
  clock_.advance(std::chrono::seconds(50));
  store.reset();
  store = open();
  expect_here({1, 2, 3, 4});
  clock_.advance(std::chrono::seconds(51));
  expect_here({1, 4});
}

TEST_F(ColdChanges, ABlockOnItsWayIsPinnedAndKeptAsALaterPutAsks) {
  auto store = open();
  const int64_t now = clock_.wall_s();
  Hold hold(*store);
  store->put(chain_blocks(1, 2), {});
  store->put(chain_blocks(1, 2), {.pin = true});
  store->put(chain_blocks(2, 1), {.expires_at = now + 10});
  store->put(chain_blocks(2, 1), {.expires_at = now + 100});
  hold.end();
  EXPECT_EQ(store->stats().pinned_bytes, 2 * encoded_bytes(make_block(1, 0)));
  EXPECT_EQ(store->stats().counters.skipped[Skip::duplicate], 3u);
  clock_.advance(std::chrono::seconds(50));
  EXPECT_EQ(match(*store, 2, 1), 1u);
  store.reset();
  expect_sound(3);
}

/// Of many that are dropped the last is put again as soon as it is gone, while the others still
/// are on their way to the writer.
TEST_F(ColdChanges, ABlockThatIsPutAgainWhileItIsDroppedStays) {
  constexpr uint32_t k_many = 500;
  for (int round = 0; round < 4; ++round) {
    std::filesystem::remove_all(directory_.path());
    auto store = open();
    std::vector<BlockId> ids;
    for (uint32_t i = 0; i < k_many; ++i) {
      store->put({make_block(i, 0, 64)}, {});
      ids.push_back(block_id(i, 0));
    }
    store->drain();
    auto again = std::async(std::launch::async, [&] {
      while (match(*store, k_many - 1, 1) != 0) std::this_thread::yield();
      store->put({make_block(k_many - 1, 0, 64)}, {.pin = true});
    });
    store->drop(ids);
    again.wait();
    store.reset();
    store = open();
    EXPECT_EQ(match(*store, k_many - 1, 1), 1u) << "round " << round;
    store.reset();
    expect_sound(1);
  }
}

TEST_F(ColdChanges, ABlockLargerThanTheQueueIsStored) {
  ColdStoreOptions options = small_options(directory_.path());
  options.queue_bytes = 64 << 10;
  auto store = open(options);
  EXPECT_GE(store->put_room(), limits::kv_record_bytes_max);
  store->put({make_block(1, 0, 512 << 10)}, {});
  store->drain();
  EXPECT_EQ(load(*store, chain_request(1, 1, 512 << 10)).blocks.size(), 1u);
  store->put({make_block(2, 0, limits::kv_record_bytes_max)}, {});
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped[Skip::invalid], 1u);
  EXPECT_GE(store->put_room(), limits::kv_record_bytes_max);
}

TEST_F(ColdChanges, APinOfABlockThatIsNotStoredIsRefused) {
  ColdStoreOptions options = small_options(directory_.path());
  options.quota_bytes["small"] = 3 * encoded_bytes(make_block(0, 0));
  auto store = open(options);
  const auto refused = std::make_shared<std::atomic<uint32_t>>(0);
  store->put(chain_blocks(1, 8), {.tenant = "small", .pin = true, .pins_refused = refused});
  store->drain();
  EXPECT_EQ(refused->load(), 5u) << "over quota";
  EXPECT_EQ(store->stats().counters.refused_pins, 5u);
  store->put(chain_blocks(1, 8), {.tenant = "small", .pin = true, .pins_refused = refused});
  store->drain();
  EXPECT_EQ(refused->load(), 10u) << "each time";
  store->close();
  store->put(chain_blocks(2, 3), {.pin = true, .pins_refused = refused});
  EXPECT_EQ(refused->load(), 13u);

  auto first = open(small_options(directory_.path() + "/other"));
  ColdStore other(small_options(directory_.path() + "/other"), surroundings(clock_));
  other.put(chain_blocks(3, 4), {.pin = true, .pins_refused = refused});
  other.drain();
  EXPECT_EQ(refused->load(), 17u);
}

/// At the limit it would last ten minutes.
TEST_F(ColdChanges, AStopWritesWhatIsQueuedAsFastAsTheDiskDoes) {
  ColdStoreOptions options = small_options(directory_.path());
  options.write_bytes_per_second = 1000;
  open(options)->put(chain_blocks(1, 8, 64 << 10), {});
  EXPECT_EQ(load(*open(options), chain_request(1, 8, 64 << 10)).blocks.size(), 8u);
}

TEST_F(ColdChanges, OneTenantsPinsLeaveRoomForAnothers) {
  ColdStoreOptions options = small_options(directory_.path());
  auto store = open(options);
  constexpr size_t k_bytes = 64 << 10;
  const uint64_t record = encoded_bytes(make_block(0, 0, k_bytes));
  const uint64_t half = options.cap_bytes / 20 / record;
  store->put(chain_blocks(1, 12, k_bytes), {.tenant = "first", .pin = true});
  store->drain();
  EXPECT_EQ(store->stats().pinned_bytes, half * record);
  EXPECT_EQ(store->stats().counters.refused_pins, 12 - half);
  store->put(chain_blocks(2, 2, k_bytes), {.tenant = "second", .pin = true});
  store->drain();
  EXPECT_EQ(store->stats().pinned_bytes, (half + 2) * record);
  EXPECT_EQ(match(*store, 1, 12), 12u) << "stored all the same";
}

TEST_F(ColdChanges, UsesOfOneChainDoNotCrowdOutThoseOfOthers) {
  ColdStoreOptions options = small_options(directory_.path());
  options.quota_bytes[""] = 2 * encoded_bytes(make_block(1, 0));
  auto store = open(options);
  store->put(chain_blocks(1, 1), {});
  store->put(chain_blocks(2, 1), {});
  store->drain();
  clock_.advance(std::chrono::seconds(1));
  for (int i = 0; i < 70'000; ++i) store->touch(chain_ids(2, 1));
  clock_.advance(std::chrono::seconds(1));
  store->touch(chain_ids(1, 1));
  store.reset();
  store = open(options);
  store->put(chain_blocks(3, 1), {});
  store->drain();
  EXPECT_EQ(match(*store, 1, 1), 1u) << "used last";
  EXPECT_EQ(match(*store, 2, 1), 0u);
}

TEST_F(ColdChanges, ATenantWithoutRoomDoesNotMakeTheOthersFlush) {
  ColdStoreOptions options = small_options(directory_.path());
  options.quota_bytes["none"] = 1;
  auto store = open(options);
  for (uint32_t i = 0; i < 8; ++i) {
    store->put({make_block(1, i)}, {.tenant = "some"});
    store->put({make_block(2, i)}, {.tenant = "none"});
  }
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped[Skip::over_quota], 8u);
  EXPECT_EQ(store->stats().counters.flushes, 1u);
}

/// Tables are a little larger than what they hold: near the end of the share each pin would begin a
/// compaction that cannot help.
TEST_F(ColdChanges, RefusedPinsDoNotRewriteThePinnedRecordsEachTime) {
  ColdStoreOptions options = small_options(directory_.path());
  options.cap_bytes = uint64_t{64} << 20;
  auto store = open(options);
  const uint64_t record = encoded_bytes(make_block(1, 0));
  const auto fit = static_cast<uint32_t>(options.cap_bytes / 20 / record);
  for (uint64_t chain = 1; chain <= 2; ++chain) {
    store->put(chain_blocks(chain, fit), {.tenant = chain == 1 ? "a" : "b", .pin = true});
  }
  store->drain();
  const ColdStats stats = store->stats();
  EXPECT_GT(stats.counters.refused_pins, 5u);
  EXPECT_LE(stats.counters.pinned_compactions, 1u);
  const uint32_t dead = fit / 2;
  EXPECT_EQ(unpin(*store, chain_ids(1, dead)).changed, dead);
  store->put(chain_blocks(3, 4), {.tenant = "a", .pin = true});
  store->drain();
  EXPECT_EQ(store->stats().pinned_bytes, stats.pinned_bytes - (dead - 4) * record)
      << "dead records make room";
}

/// Makes this process's descriptors of the directory's tables unreadable: each read fails from now
/// on, as from a broken disk.
void break_open_tables(const std::string& directory) {
  const int unreadable = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::vector<int> tables;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::filesystem::path path = std::filesystem::read_symlink(entry.path(), gone);
    if (path.string().starts_with(directory) && path.extension() == ".sst") {
      tables.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  EXPECT_FALSE(tables.empty());
  for (const int table : tables) ::dup2(unreadable, table);
  ::close(unreadable);
}

TEST_F(ColdChanges, ARecordThatStaysUnreadableLosesItsRowAtTheThirdRead) {
  auto store = open();
  store->put(chain_blocks(0, 2), {});
  store->drain();
  break_open_tables(database_directory(directory_.path()));
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(store->stats().rows, 2u);
    EXPECT_EQ(load(*store, chain_request(0, 1)).summary.stopped, Miss::io_error);
    EXPECT_EQ(store->stats().counters.loads[Miss::io_error], static_cast<uint64_t>(i));
  }
  EXPECT_EQ(store->stats().rows, 1u);
  EXPECT_EQ(store->stats().counters.removed[Removal::unreadable], 1u);
  EXPECT_EQ(load(*store, chain_request(0, 1)).summary.stopped, Miss::absent);
  store->put({make_block(0, 0)}, {});
  store->drain();
  EXPECT_EQ(load(*store, chain_request(0, 1)).blocks.size(), 1u) << "written again, elsewhere";
}

/// Some calls beside what they mean one after the other: what the index has changes at once, the
/// rest when the writer comes to it.
class NaiveStore {
 public:
  struct Kept {
    bool pinned = false;
    int64_t expires_at = 0;
  };
  std::map<uint32_t, Kept> here;

  void put(uint32_t id, Kept how) {
    if (here.contains(id) || !coming_.insert(id).second) {
      if (how.pinned) return pin(id, how.expires_at);
      return keep_until(id, how.expires_at);
    }
    later_.push_back([this, id, how] { here[id] = how; });
  }
  void drop(uint32_t id) {
    if (here.erase(id) != 0 || !coming_.contains(id)) return;
    later_.push_back([this, id] { here.erase(id); });
  }
  void keep_until(uint32_t id, int64_t at) {
    if (at == 0) return;  // of a put without an end: it asked for nothing
    const auto set = [this, id, at] {
      if (here.contains(id)) here[id].expires_at = later(here[id].expires_at, at);
    };
    set();
    later_.push_back(set);
  }
  void pin(uint32_t id, int64_t at) {
    later_.push_back([this, id, at] {
      if (!here.contains(id)) return;
      const Kept was = here[id];
      const bool asked = was.pinned || was.expires_at != 0;
      here[id] = {true, asked ? later(was.expires_at, at) : at};
    });
  }
  void unpin(uint32_t id) {
    later_.push_back([this, id] {
      if (here.contains(id)) here[id].pinned = false;
    });
  }
  void catch_up(int64_t now) {
    for (const auto& change : std::exchange(later_, {})) change();
    coming_.clear();
    std::erase_if(here, [now](const auto& entry) {
      return entry.second.expires_at != 0 && entry.second.expires_at <= now;
    });
  }
  uint64_t pinned() const {
    return static_cast<uint64_t>(std::count_if(
        here.begin(), here.end(), [](const auto& entry) { return entry.second.pinned; }));
  }

 private:
  std::set<uint32_t> coming_;
  std::vector<std::function<void()>> later_;

  static int64_t later(int64_t one, int64_t other) {
    return one == 0 || other == 0 ? 0 : std::max(one, other);
  }
};

void change_both(Random& random, ColdStore& store, NaiveStore& naive, int64_t now) {
  const uint32_t id = random.below(12);
  const std::vector<BlockId> ids = {block_id(id, 0)};
  const int64_t at = random.chance(0.5f) ? 0 : now + 1 + random.below(30);
  switch (random.below(7)) {
    case 0:
    case 1: {
      const bool pin = random.chance(0.4f);
      store.put({make_block(id, 0)}, {.pin = pin, .expires_at = at});
      return naive.put(id, {pin, at});
    }
    case 2:
      store.drop(ids);
      return naive.drop(id);
    case 3:
      if (at == 0) return;
      store.keep_until(ids, at);
      return naive.keep_until(id, at);
    case 4:
      store.unpin(ids);
      return naive.unpin(id);
    default:
      store.pin(ids, at);
      return naive.pin(id, at);
  }
}

/// OUTRIDER_FUZZ_OPERATIONS asks for a longer run, with more changes between two looks.
TEST_F(ColdChanges, AnyOrderOfChangesEndsAsItsNaiveTwinSays) {
  ColdStoreOptions options = small_options(directory_.path());
  options.cap_bytes = uint64_t{64} << 20;
  const char* asked = std::getenv("OUTRIDER_FUZZ_OPERATIONS");
  const uint64_t operations = asked == nullptr ? 1'000 : std::strtoull(asked, nullptr, 10);
  constexpr uint64_t k_seeds = 6;
  const auto changes_max = static_cast<uint32_t>(std::clamp<uint64_t>(operations / 500, 12, 4'000));
  for (uint64_t seed = 1; seed <= k_seeds; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::filesystem::remove_all(directory_.path());
    NaiveStore naive;
    auto store = open(options);
    uint64_t done = 0;
    for (uint64_t round = 0; done < operations / k_seeds; ++round) {
      Hold hold(*store);
      const uint32_t changes = random.below(changes_max);
      for (uint32_t i = 0; i < changes; ++i) {
        change_both(random, *store, naive, clock_.wall_s());
      }
      done += changes;
      hold.end();
      naive.catch_up(clock_.wall_s());
      clock_.advance(std::chrono::seconds(random.below(5)));
      naive.catch_up(clock_.wall_s());
      if (random.chance(0.2f)) {
        store.reset();
        expect_sound(naive.here.size());
        store = open(options);
      }
      store->drain();
      for (uint32_t id = 0; id < 12; ++id) {
        const size_t loaded = load(*store, chain_request(id, 1)).blocks.size();
        ASSERT_EQ(loaded, naive.here.count(id)) << "block " << id << " round " << round;
      }
      ASSERT_EQ(store->stats().pinned_bytes, naive.pinned() * encoded_bytes(make_block(0, 0)))
          << "round " << round;
    }
  }
}

}  // namespace
}  // namespace outrider::kvstore
