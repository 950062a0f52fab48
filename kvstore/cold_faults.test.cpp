// What a disk, a kill or a person may do to a store's directory. Always: no exception, no wrong
// block, a counted reason, and a store that goes on serving.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include "base/log.hpp"
#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"
#include "kvstore/store_place.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Faults, AFlippedBitInARecordEndsItsChainThere) {
  fill();
  for (const uint32_t chain : {1u, k_chains - 1}) {
    const Block block = make_block(chain, 2);
    const auto [path, at] = find(std::span(block.tensors[1].bytes).first(64));
    if (chain + 1 != k_chains) {
      ASSERT_FALSE(path.empty());
    } else if (path.empty()) {
      continue;  // pinned records may still be in the log
    }
    std::string content = read_file(path);
    content[at + 5] = static_cast<char>(content[at + 5] ^ 0x10);
    write_file(path, content);
    auto store = open();
    const LoadOutcome out = load(*store, chain_request(chain, k_blocks));
    EXPECT_EQ(out.summary.stopped, Miss::corrupt);
    EXPECT_EQ(out.blocks.size(), 2u);
    EXPECT_EQ(store->match(k_test_ns, chain_ids(chain, k_blocks)), 2u) << "the row is gone";
    EXPECT_EQ(store->stats().counters.removed[Removal::corrupt], 1u);
    store->put({make_block(chain, 2)}, {});
    store->drain();
    EXPECT_EQ(load(*store, chain_request(chain, k_blocks)).blocks.size(), k_blocks) << "healed";
  }
}

TEST_F(Faults, FlippedBitsAndTruncationsOfEveryFileAreHarmless) {
  fill();
  fs::rename(store_path(), directory_.path() + "/golden");
  fs::create_directories(store_path());
  fs::copy(directory_.path() + "/golden", store_path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  Random random(1);
  for (const fs::path& path : files()) {
    const std::string content = read_file(path);
    for (int i = 0; i < 3 && !content.empty(); ++i) {
      const size_t at = random.below(static_cast<uint32_t>(content.size()));
      const char bit = static_cast<char>(1 << random.below(8));
      expect_harmless("flip " + path.filename().string() + " at " + std::to_string(at), [&] {
        std::string damaged = content;
        damaged[at] = static_cast<char>(damaged[at] ^ bit);
        write_file(path, damaged);
      });
    }
    for (const size_t size : {size_t{0}, content.size() / 2}) {
      expect_harmless("truncate " + path.filename().string() + " to " + std::to_string(size),
                      [&] { write_file(path, content.substr(0, size)); });
    }
    expect_harmless("delete " + path.filename().string(), [&] { fs::remove(path); });
  }
}

TEST_F(Faults, SwappedFilesAreHarmless) {
  fill();
  fs::rename(store_path(), directory_.path() + "/golden");
  fs::copy(directory_.path() + "/golden", store_path(), fs::copy_options::recursive);
  std::vector<fs::path> tables = files();
  std::erase_if(tables, [](const fs::path& path) { return path.extension() != ".sst"; });
  ASSERT_GE(tables.size(), 3u);
  for (size_t i = 0; i + 1 < tables.size(); ++i) {
    expect_harmless("swap " + tables[i].string(), [&] {
      const std::string one = read_file(tables[i]), other = read_file(tables[i + 1]);
      write_file(tables[i], other);
      write_file(tables[i + 1], one);
    });
  }
}

TEST_F(Faults, ARecordUnderAnotherIdIsCorrupt) {
  fill();
  {
    auto opened = open_database();
    ASSERT_TRUE(opened.database) << opened.error.message;
    const auto record = encode(make_block(2, 4));
    ASSERT_TRUE(opened.database->put_payload(block_id(1, 4), *record));
    ASSERT_TRUE(opened.database->flush_payload());
  }
  auto store = open();
  const LoadOutcome out = load(*store, chain_request(1, k_blocks));
  EXPECT_EQ(out.summary.stopped, Miss::corrupt);
  EXPECT_EQ(out.blocks.size(), 4u);
}

/// Rows of writes that have not been yet would stand in the way of those that come.
TEST_F(Faults, RowsFromTheFutureAreBroken) {
  fill();
  {
    auto opened = open_database();
    ASSERT_TRUE(opened.database) << opened.error.message;
    const auto last = opened.database->put_payload(block_id(500, 1), {});
    ASSERT_TRUE(last);
    RowBatch rows;
    for (uint32_t i = 0; i < 200; ++i) {
      Row row;
      row.ns = short_of(k_test_ns);
      row.sequence = *last + 202 + i;  // the batch itself and the start take 201
      row.bytes = 100;
      rows.put_row(block_id(500 + i, 0), row);
    }
    ASSERT_TRUE(opened.database->write(rows));
  }
  EXPECT_EQ(inspect(store_path(), {})->broken_rows, 200u);
  auto store = open();
  EXPECT_EQ(store->stats().counters.broken_rows, 200u);
  EXPECT_EQ(unpin(*store, chain_ids(k_chains - 1, k_blocks)).changed, k_blocks);
  EXPECT_EQ(load_all(*store), k_chains * k_blocks);
}

TEST_F(Faults, ARecordWhoseRowIsBrokenDoesNotStayPinned) {
  fill();
  {
    auto opened = open_database();
    ASSERT_TRUE(opened.database) << opened.error.message;
    const BlockId id = block_id(600, 0);
    ASSERT_TRUE(opened.database->put_payload(id, {}));  // numbers go on
    Row future;
    future.sequence = UINT64_MAX;
    RowBatch rows;
    rows.put_pinned(id, *opened.database->read(block_id(k_chains - 1, 0), Place::pinned));
    rows.put_row(id, future);
    ASSERT_TRUE(opened.database->write(rows));
  }
  open();
  const auto report = inspect(store_path(), {.verify = true});
  EXPECT_EQ(report->orphans, 0u);
  EXPECT_EQ(report->good_records, k_chains * k_blocks);
}

TEST_F(Faults, AnOutageThatGoesOnIsCountedOnce) {
  fill();
  auto first = open();
  auto second = open();
  for (int i = 0; i < 3; ++i) {
    clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
    second->put(chain_blocks(50, 1), {});
    second->drain();
  }
  EXPECT_EQ(second->stats().counters.outages[Outage::in_use], 1u);
}

/// Its row was to be deleted by the write that failed.
TEST_F(Faults, WhatWasDroppedDoesNotComeBackWithTheDisk) {
  auto store = open();
  store->put(chain_blocks(1, 2), {});
  store->drain();
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{1, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  store->drop(chain_ids(1, 2));
  store->put(chain_blocks(2, 2, 64 << 10), {});
  store->drain();
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_NE(store->stats().outage, Outage::none);
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(*store);
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, 2)), 0u);
  store.reset();
  EXPECT_EQ(open()->match(k_test_ns, chain_ids(1, 2)), 0u);
}

TEST_F(Faults, AnotherFormatIsMovedAside) {
  fill();
  {
    auto opened = open_database();
    ASSERT_TRUE(opened.database->set_mark(k_format_mark, "outrider-kv-2"));
  }
  auto store = open();
  EXPECT_EQ(store->stats().counters.quarantined, 1u);
  EXPECT_EQ(store->stats().counters.salvaged, 0u);
  EXPECT_TRUE(fs::exists(quarantine_directory(store_path()) + "/CURRENT"));
  EXPECT_EQ(load_all(*store), 0u);
  expect_serving(*store);
}

TEST_F(Faults, ADatabaseThatWasKilledWhileItWasMadeIsNoDamage) {
  fs::create_directories(db_path());
  write_file(db_path() + "/MANIFEST-000001", "half of one");
  auto store = open();
  EXPECT_EQ(store->stats().counters.quarantined, 0u) << store->stats().outage_text;
  expect_serving(*store);
}

TEST_F(Faults, TheQuarantineKeepsNoPayloadAndOnlyTheLastOne) {
  const uint64_t most = small_options("").cap_bytes / 16;
  for (int i = 0; i < 2; ++i) {
    {
      auto store = open();
      store->put(chain_blocks(1, 30, 64 << 10), {});
      store->drain();
    }
    ASSERT_TRUE(open_database().database->set_mark(k_format_mark, "another"));
    auto store = open();
    EXPECT_EQ(store->stats().counters.quarantined, 1u);
    EXPECT_LE(disk_bytes(quarantine_directory(store_path())), most);
  }
}

TEST_F(Faults, ASecondOwnerServesMissesAndDoesNoHarm) {
  fill();
  auto first = open();
  auto second = open();
  EXPECT_EQ(second->stats().outage, Outage::in_use);
  EXPECT_EQ(second->stats().counters.quarantined, 0u);
  EXPECT_EQ(load_all(*second), 0u);
  EXPECT_EQ(second->stats().counters.loads[Miss::unavailable], k_chains);
  std::optional<Result<uint64_t>> dropped;
  second->drop_all({}, [&](Result<uint64_t> result) { dropped.emplace(std::move(result)); });
  second->drain();
  ASSERT_FALSE(dropped.value());
  EXPECT_EQ(dropped.value().error().code, ErrorCode::unavailable);
  EXPECT_EQ(dropped.value().error().message, "the KV store cannot be written: in_use");
  EXPECT_EQ(load_all(*first), k_chains * k_blocks);
  first.reset();
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  second->put(chain_blocks(50, 1), {});
  second->drain();
  EXPECT_EQ(load_all(*second), k_chains * k_blocks) << "it tried again";
}

/// Without root's right to write everywhere, as long as it lives.
class AsNobody {
 public:
  AsNobody() : was_root_(geteuid() == 0) {
    if (was_root_ && seteuid(65534) != 0) was_root_ = false;
  }
  ~AsNobody() {
    if (was_root_ && seteuid(0) != 0) std::abort();
  }

 private:
  bool was_root_;
};

TEST_F(Faults, AReadOnlyDirectoryServesMissesAndIsLeftAlone) {
  fill();
  const auto change = [this](fs::perm_options how) {
    const auto write = fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
    for (const auto& entry : fs::recursive_directory_iterator(store_path())) {
      fs::permissions(entry.path(), write, how);
    }
    fs::permissions(store_path(), write, how);
  };
  change(fs::perm_options::remove);
  {
    const AsNobody nobody;
    auto store = open();
    EXPECT_EQ(store->stats().outage, Outage::read_only) << store->stats().outage_text;
    EXPECT_EQ(load_all(*store), 0u);
    store->put(chain_blocks(50, 2), {});
    store->drain();
    const ColdStats stats = store->stats();
    EXPECT_EQ(stats.counters.skipped[Skip::unavailable], 2u);
    EXPECT_EQ(stats.counters.loads[Miss::unavailable], k_chains);
    EXPECT_EQ(stats.counters.quarantined, 0u);
  }
  fs::permissions(store_path(), fs::perms::owner_all);
  for (const auto& entry : fs::recursive_directory_iterator(store_path())) {
    fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
  }
  EXPECT_EQ(load_all(*open()), k_chains * k_blocks);
}

TEST_F(Faults, AFileInItsPlaceIsAnOutage) {
  write_file(store_path(), "not a directory");
  auto store = open();
  EXPECT_NE(store->stats().outage, Outage::none);
  EXPECT_EQ(load_all(*store), 0u);
}

TEST_F(Faults, AStoreThatStopsOpensNothingAnyMore) {
  write_file(store_path(), "not a directory");
  auto store = open();
  EXPECT_EQ(store->stats().outage, Outage::io_error);
  fs::remove(store_path());
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  store.reset();
  EXPECT_FALSE(fs::exists(store_path()));
}

TEST_F(Faults, OthersMayNotEnterItsDirectories) {
  const auto mode = [](const std::string& path) { return fs::status(path).permissions(); };
  fs::create_directories(quarantine_directory(store_path()));
  fs::create_directories(db_path());
  const std::vector<std::string> all = {store_path(), db_path(),
                                        quarantine_directory(store_path())};
  for (const std::string& path : all) fs::permissions(path, fs::perms(0755));
  open();
  for (const std::string& path : all) EXPECT_EQ(mode(path), fs::perms::owner_all) << path;
}

TEST_F(Faults, WhatElseBelongsIntoADeletedDirectoryIsPutThere) {
  ColdStoreOptions options = small_options(store_path());
  options.restore = [this] { write_file(store_path() + "/beside", "it"); };
  ColdStore store(options, surroundings(clock_));
  store.drain();
  fs::remove_all(store_path());
  store.put(chain_blocks(2, k_blocks), {});
  store.drain();
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(store);
  EXPECT_EQ(read_file(store_path() + "/beside"), "it");
}

TEST_F(Faults, WritesThatFailAreCountedAndTriedAgainLater) {
  auto store = open();
  store->put(chain_blocks(1, k_blocks), {});
  store->drain();
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{16 << 10, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  store->put(chain_blocks(2, k_blocks, 64 << 10), {});
  store->drain();
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  ColdStats stats = store->stats();
  EXPECT_GT(stats.counters.skipped[Skip::write_failed], 0u);
  EXPECT_EQ(stats.counters.skipped.total(), k_blocks) << "those after the failure: unavailable";
  EXPECT_NE(stats.outage, Outage::none);
  store->put(chain_blocks(3, 2), {});
  store->drain();
  EXPECT_EQ(store->stats().counters.skipped.total(), k_blocks + 2);
  EXPECT_EQ(load(*store, chain_request(1, k_blocks)).blocks.size(), k_blocks) << "reads go on";
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(*store);
  EXPECT_EQ(store->stats().outage, Outage::none);
}

TEST_F(Faults, AfterAnOutageCountersGoOnAndNobodyWasKilled) {
  Surroundings outside = surroundings(clock_);
  outside.log = *make_logger({});
  ::testing::internal::CaptureStderr();
  ColdStore store(small_options(store_path()), outside);
  store.put(chain_blocks(1, k_blocks, 64 << 10), {});
  store.drain();
  const uint64_t written = store.stats().counters.payload_written_bytes;
  EXPECT_GE(written, k_blocks * (64 << 10));
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{16 << 10, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  store.put(chain_blocks(2, k_blocks, 64 << 10), {});
  store.drain();
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_NE(store.stats().outage, Outage::none);
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(store);
  const ColdStats stats = store.stats();
  EXPECT_EQ(stats.outage, Outage::none) << stats.outage_text;
  EXPECT_GT(stats.counters.payload_written_bytes, written);
  EXPECT_EQ(stats.counters.unclean_starts, 0u);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("last_stop=outage"));
  EXPECT_THAT(lines, Not(HasSubstr("last_stop=killed")));
}

TEST_F(Faults, ADeletedDatabaseIsMadeAnewWhileItRuns) {
  auto store = open();
  store->put(chain_blocks(1, k_blocks), {});
  store->drain();
  fs::remove_all(db_path());
  store->put(chain_blocks(2, k_blocks), {});
  store->drain();
  EXPECT_EQ(store->stats().outage, Outage::io_error);
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(*store);
  EXPECT_EQ(store->stats().outage, Outage::none) << store->stats().outage_text;
  EXPECT_EQ(store->match(k_test_ns, chain_ids(1, k_blocks)), 0u) << "gone with its files";
}

TEST_F(Faults, AStoreThatIsMovedAwayGoesOnWhereItIs) {
  const std::string parent = directory_.path() + "/parent";
  const std::string moved = directory_.path() + "/moved";
  {
    ColdStore store(small_options(parent + "/store"), surroundings(clock_));
    store.put(chain_blocks(1, k_blocks), {});
    store.drain();
    fs::rename(parent, moved);
    write_file(parent, "no directory");
    store.put(chain_blocks(2, k_blocks), {});
    store.drain();
    EXPECT_EQ(store.stats().outage, Outage::none) << store.stats().outage_text;
    for (const uint64_t chain : {1, 2}) {
      EXPECT_EQ(load(store, chain_request(chain, k_blocks)).blocks.size(), k_blocks);
    }
  }
  ColdStore store(small_options(moved + "/store"), surroundings(clock_));
  store.drain();
  EXPECT_EQ(load(store, chain_request(2, k_blocks)).blocks.size(), k_blocks) << "stored there";
  expect_serving(store);
}

TEST_F(Faults, NothingBeginsAnewOnAnotherFileSystem) {
  fill();
  const auto here = file_system_of(store_path());
  ASSERT_TRUE(here);
  EXPECT_EQ(file_system_of(store_path() + "/not/there/yet"), here);
  const std::function<uint64_t()> bits = [] { return uint64_t{1}; };
  const auto open_as_before_on = [&](uint64_t number) {
    return open_store(small_options(store_path()),
                      {.random_bits = bits, .file_system = number, .salvaging = {}});
  };
  EXPECT_TRUE(open_as_before_on(*here + 1).database) << "mounted again, with another number";
  fs::remove_all(store_path());
  const OpenedStore away = open_as_before_on(*here + 1);
  EXPECT_EQ(away.outage, Outage::io_error);
  EXPECT_FALSE(fs::exists(store_path())) << "nothing is left in the mount point";
  EXPECT_TRUE(open_as_before_on(*here).made) << "another program deleted it";
}

TEST_F(Faults, NothingIsMadeWhereADiskWasUnmounted) {
  const std::string disk = directory_.path() + "/disk";
  fs::create_directories(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64m") != 0) {
    std::printf("not run here: to unmount a disk needs the right to mount one\n");
    return;
  }
  ColdStore store(small_options(disk + "/store"), surroundings(clock_));
  store.put(chain_blocks(1, k_blocks), {});
  store.drain();
  umount2(disk.c_str(), MNT_DETACH);
  for (uint64_t chain : {2, 3}) {
    store.put(chain_blocks(chain, k_blocks), {});
    store.drain();
    clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  }
  EXPECT_FALSE(fs::exists(disk + "/store"));
  EXPECT_EQ(load(store, chain_request(1, k_blocks)).blocks.size(), k_blocks);
}

TEST_F(Faults, AFullDiskIsAnOutageThatEnds) {
  const std::string small_disk = directory_.path() + "/disk";
  fs::create_directories(small_disk);
  if (mount("tmpfs", small_disk.c_str(), "tmpfs", 0, "size=3m") != 0) {
    std::printf("not run here: a full disk needs the right to mount one\n");
    return;
  }
  {
    ColdStore store(small_options(small_disk), surroundings(clock_));
    store.drain();
    for (uint64_t chain = 0; chain < 10; ++chain) {
      store.put(chain_blocks(chain, 8, 64 << 10), {});
      store.drain();
    }
    ColdStats stats = store.stats();
    EXPECT_EQ(stats.outage, Outage::no_space) << stats.outage_text;
    EXPECT_GT(stats.counters.skipped[Skip::write_failed], 0u);
    EXPECT_EQ(load(store, chain_request(0, 8, 64 << 10)).blocks.size(), 8u) << "reads go on";
    mount("tmpfs", small_disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m");
    clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
    store.put(chain_blocks(50, 8, 64 << 10), {});
    store.drain();
    EXPECT_EQ(load(store, chain_request(50, 8, 64 << 10)).blocks.size(), 8u)
        << store.stats().outage_text;
    EXPECT_EQ(store.stats().outage, Outage::none) << store.stats().outage_text;
  }
  umount2(small_disk.c_str(), MNT_DETACH);
}

/// Wherever the disk becomes full: while opening, in the log, in a flush, in a compaction.
TEST_F(Faults, NoSizeOfDiskAbortsTheStore) {
  const std::string small_disk = directory_.path() + "/disk";
  fs::create_directories(small_disk);
  for (int kilobytes = 8; kilobytes < 1500; kilobytes += kilobytes / 2 + 4) {
    const std::string size = "size=" + std::to_string(kilobytes) + "k";
    if (mount("tmpfs", small_disk.c_str(), "tmpfs", 0, size.c_str()) != 0) {
      std::printf("not run here: a full disk needs the right to mount one\n");
      return;
    }
    {
      ColdStoreOptions options = small_options(small_disk);
      options.pinned_share = 0.5;
      ColdStore store(options, surroundings(clock_));
      for (uint64_t chain = 0; chain < 6; ++chain) {
        store.put(chain_blocks(chain, 4, 64 << 10), {.pin = chain % 2 == 0});
        store.drain();
        const LoadOutcome out = load(store, chain_request(chain, 4, 64 << 10));
        for (uint32_t i = 0; i < out.blocks.size(); ++i) {
          EXPECT_TRUE(same_content(out.blocks[i].record, make_block(chain, i, 64 << 10)));
        }
        clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
      }
      const ColdStats stats = store.stats();
      EXPECT_EQ(stats.counters.stored_blocks + stats.counters.skipped.total(), 24u);
      EXPECT_GT(stats.counters.outages[Outage::no_space], 0u) << stats.outage_text << kilobytes;
    }
    umount2(small_disk.c_str(), MNT_DETACH);
  }
}

TEST_F(Faults, DamageThatStopsACompactionIsSalvagedWhileItRuns) {
  constexpr size_t k_bytes = 64 << 10;
  {
    auto store = open();
    store->put(chain_blocks(1, 5, k_bytes), {.pin = true});
    std::vector<Block> rest = chain_blocks(1, 10, k_bytes);
    rest.erase(rest.begin(), rest.begin() + 5);
    store->put(std::move(rest), {.tenant = "other", .pin = true});
    store->drain();
    EXPECT_EQ(store->stats().pinned_bytes, 10 * encoded_bytes(make_block(1, 0, k_bytes)));
  }
  open();  // replays the log into a table
  const Block block = make_block(1, 9, k_bytes);
  const auto [path, at] = find(std::span(block.tensors[0].bytes).first(64));
  ASSERT_FALSE(path.empty());
  std::string content = read_file(path);
  content[at] = static_cast<char>(content[at] ^ 1);
  write_file(path, content);

  auto store = open();
  EXPECT_EQ(unpin(*store, chain_ids(1, 8)).changed, 8u);
  for (uint64_t chain = 10; chain < 18; ++chain) {  // until dead records must make room
    store->put(chain_blocks(chain, 1, k_bytes),
               {.tenant = chain % 2 == 0 ? "" : "other", .pin = true});
    store->drain();
  }
  EXPECT_EQ(store->stats().outage, Outage::damaged) << store->stats().outage_text;
  EXPECT_EQ(load(*store, chain_request(1, 8, k_bytes)).blocks.size(), 8u) << "reads go on";
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(*store);
  EXPECT_EQ(store->stats().counters.salvaged, 1u);
  EXPECT_EQ(store->stats().counters.quarantined, 0u);
  EXPECT_EQ(store->stats().outage, Outage::none);
  EXPECT_EQ(load(*store, chain_request(1, 8, k_bytes)).blocks.size(), 8u) << "were elsewhere";
}

}  // namespace
}  // namespace outrider::kvstore
