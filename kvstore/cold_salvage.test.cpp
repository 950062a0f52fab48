// What a store keeps of a damaged directory, without anybody's help.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "base/log.hpp"
#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Salvage : public Faults {
 protected:
  /// A salvage waits for this table until `release`.
  void damage_for_long() {
    fill_tables();
    fs::remove(db_path() + "/CURRENT");
    fs::create_directories(db_path() + "/lost");
    write_file(db_path() + "/lost/009999.sst", "none");
    held_.emplace(db_path() + "/lost/009999.sst");
  }
  void wait_for_salvage() const {
    while (!Database::salvage_was_cut_off(db_path())) std::this_thread::yield();
  }
  void release() { held_.reset(); }

 private:
  std::optional<HeldFile> held_;
};

/// What may lie in a file's place.
enum class Lies : uint8_t { directory, full_directory, pipe, link, dangling, to_itself };

void lay(const fs::path& path, Lies what, const fs::path& other) {
  fs::remove(path);
  if (what == Lies::directory) fs::create_directories(path);
  if (what == Lies::full_directory) fs::create_directories(path / "something");
  if (what == Lies::pipe) {
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  }
  if (what == Lies::link) fs::create_symlink(other, path);
  if (what == Lies::dangling) fs::create_symlink("/nowhere/at/all", path);
  if (what == Lies::to_itself) fs::create_symlink(path.filename(), path);
}

TEST_F(Salvage, ALostTableCostsWhatItHeld) {
  fill_tables();
  const fs::path lost = find(std::span(make_block(1, 2).tensors[1].bytes).first(64)).first;
  ASSERT_FALSE(lost.empty());
  fs::remove(lost);
  Surroundings outside = surroundings(clock_);
  outside.log = *make_logger({});
  ::testing::internal::CaptureStderr();
  ColdStore store(small_options(store_path()), outside);
  store.drain();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("a table, " + lost.filename().string() + ", is lost"));
  EXPECT_THAT(lines, HasSubstr("was salvaged: 18 records kept, 6 lost"));
  const ColdStats stats = store.stats();
  EXPECT_EQ(stats.counters.salvaged, 1u);
  EXPECT_EQ(stats.counters.quarantined, 0u);
  EXPECT_EQ(stats.counters.removed[Removal::corrupt], k_blocks);
  EXPECT_EQ(stats.rows, (k_chains - 1) * k_blocks);
  EXPECT_THAT(stats.outage_text, HasSubstr("is lost")) << "operators are told why";
  EXPECT_EQ(load_all(store), (k_chains - 1) * k_blocks);
  EXPECT_FALSE(fs::exists(db_path() + "/lost"));
  expect_serving(store);
}

TEST_F(Salvage, TheLogIsReadWhereItHasTheFirstPinnedRecords) {
  for (const bool pin : {false, true}) {
    auto store = open();
    store->put(chain_blocks(pin ? 2 : 1, k_blocks), {.pin = pin});
    store->drain();
  }
  fs::remove(db_path() + "/CURRENT");
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 1u);
  for (const uint64_t chain : {1, 2}) {
    EXPECT_EQ(load(*store, chain_request(chain, k_blocks)).blocks.size(), k_blocks);
  }
}

TEST_F(Salvage, AFileThatIsDeletedWhileItIsOpenIsTold) {
  fill_tables();
  Surroundings outside = surroundings(clock_);
  outside.log = *make_logger({});
  ColdStore store(small_options(store_path()), outside);
  store.drain();
  const fs::path lost = find(std::span(make_block(1, 2).tensors[1].bytes).first(64)).first;
  fs::remove(lost);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    clock_.advance(std::chrono::milliseconds(small_options("").use_age_ms));
    store.drain();  // looks when it is done
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("another program deleted " + lost.string()));
  EXPECT_EQ(lines.find("deleted"), lines.rfind("deleted")) << lines;
  EXPECT_EQ(store.stats().deleted_files, 1u);
  EXPECT_EQ(load_all(store), k_chains * k_blocks);
}

TEST_F(Salvage, AnyFileCostsNoMoreThanWhatItHeld) {
  fill_tables();
  uint64_t salvaged = 0;
  for (const fs::path& path : files()) {
    SCOPED_TRACE(path.filename().string());
    restore();
    fs::remove(path);
    auto store = open();
    const ColdStats stats = store->stats();
    EXPECT_EQ(stats.outage, Outage::none) << stats.outage_text;
    const uint32_t came = load_all(*store);
    EXPECT_EQ(came, stats.rows) << "no row without its record";
    EXPECT_EQ(came == 0, stats.counters.quarantined == 1) << "the index was in that table";
    if (path.extension() != ".sst") {
      EXPECT_EQ(came, k_chains * k_blocks);
    }
    salvaged += stats.counters.salvaged;
    expect_serving(*store);
    store.reset();
    const auto report = inspect(store_path(), {.verify = true});
    EXPECT_EQ(report->missing_records + report->corrupt_records + report->orphans, 0u);
    EXPECT_EQ(open()->stats().counters.salvaged, 0u) << "once";
  }
  EXPECT_GE(salvaged, 5u) << "three payload tables, the list of tables, its name";
}

TEST_F(Salvage, RequestsComputeMeanwhile) {
  damage_for_long();
  ColdStore store(small_options(store_path()), surroundings(clock_));
  wait_for_salvage();
  EXPECT_FALSE(store.wait_open(Duration(0)));
  EXPECT_EQ(load_all(store), 0u);
  EXPECT_EQ(store.stats().counters.loads[Miss::unavailable], k_chains);
  EXPECT_EQ(store.stats().outage, Outage::opening);
  EXPECT_THAT(inspect(store_path(), {}).error().message, HasSubstr("in use by another process"));
  ColdStore second(small_options(store_path()), surroundings(clock_));
  EXPECT_TRUE(second.wait_open(std::chrono::hours(1)));
  EXPECT_EQ(second.stats().outage, Outage::in_use) << "it leaves alone what is being salvaged";
  release();
  EXPECT_TRUE(store.wait_open(std::chrono::hours(1)));
  EXPECT_EQ(store.stats().counters.salvaged, 1u) << store.stats().outage_text;
  EXPECT_EQ(load_all(store), k_chains * k_blocks);
}

/// With the limit it would take hours.
TEST_F(Salvage, ALimitThatIsLiftedMeanwhileStaysSo) {
  damage_for_long();
  ColdStoreOptions options = small_options(store_path());
  options.write_bytes_per_second = 1024;
  ColdStore store(options, surroundings(clock_));
  wait_for_salvage();
  store.lift_write_limit();
  release();
  EXPECT_TRUE(store.wait_open(std::chrono::hours(1)));
  for (uint64_t chain = 300; chain < 310; ++chain) {
    store.put(chain_blocks(chain, k_blocks, 16 << 10), {});
    store.drain();
  }
  EXPECT_EQ(store.stats().counters.stored_blocks, 10 * k_blocks);
}

TEST_F(Salvage, NobodyTouchesWhatAnotherSalvages) {
  damage_for_long();
  ColdStore store(small_options(store_path()), surroundings(clock_));
  wait_for_salvage();
  const std::function<uint64_t()> bits = [] { return uint64_t{1}; };
  for (const bool may_salvage : {true, false}) {  // who looked before it began
    const OpenedStore second = open_store(
        small_options(store_path()),
        {.random_bits = bits, .known_damage = "seen", .may_salvage = may_salvage, .salvaging = {}});
    EXPECT_EQ(second.outage, Outage::in_use) << second.outage_text;
    EXPECT_FALSE(second.quarantined);
  }
  EXPECT_EQ(quarantine(store_path(), 0).error().code, ErrorCode::unavailable);
  release();
  EXPECT_TRUE(store.wait_open(std::chrono::hours(1)));
  EXPECT_EQ(load_all(store), k_chains * k_blocks) << store.stats().outage_text;
}

TEST_F(Salvage, OfTwoThatStartAtOnceOneKeepsAll) {
  fill_tables();
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    restore();
    fs::remove(db_path() + "/CURRENT");
    ColdStore one(small_options(store_path()), surroundings(clock_));
    ColdStore other(small_options(store_path()), surroundings(clock_));
    one.drain();
    other.drain();
    EXPECT_EQ(load_all(one) + load_all(other), k_chains * k_blocks);
    EXPECT_EQ(one.stats().counters.quarantined + other.stats().counters.quarantined, 0u);
  }
}

TEST_F(Salvage, ABadBlockOfTheIndexCostsItsRowsOnly) {
  constexpr uint64_t k_many = 200;
  {
    auto store = open();
    for (uint64_t chain = 0; chain < k_many; ++chain) {
      store->put(chain_blocks(chain, k_blocks, 256), {.pin = chain % 10 == 0});
    }
    store->drain();
  }
  open();  // replays the log into tables
  keep();
  const Row row = [&] {
    Row found;
    const auto keep = [&](const BlockId& id, const Row& one) {
      if (id == block_id(3, 2)) found = one;
    };
    EXPECT_TRUE(open_database().database->each_row(keep, [](std::string_view) {}));
    return found;
  }();
  const auto [path, at] = find(encode_row(block_id(3, 2), row));
  ASSERT_FALSE(path.empty());
  for (const size_t where : {size_t{100}, at}) {  // the first block has no key before it
    restore();
    std::string content = read_file(path);
    content[where] = static_cast<char>(content[where] ^ 1);
    write_file(path, content);
    Surroundings outside = surroundings(clock_);
    outside.log = *make_logger({});
    ::testing::internal::CaptureStderr();
    const auto store = std::make_unique<ColdStore>(small_options(store_path()), outside);
    store->drain();
    const std::string lines = ::testing::internal::GetCapturedStderr();
    const ColdStats stats = store->stats();
    EXPECT_EQ(stats.counters.salvaged, 1u) << stats.outage_text;
    EXPECT_EQ(stats.counters.quarantined, 0u);
    EXPECT_LT(stats.rows, k_many * k_blocks);
    EXPECT_THAT(lines, HasSubstr(std::to_string(stats.rows) + " records kept, " +
                                 std::to_string(k_many * k_blocks - stats.rows) + " lost"));
    EXPECT_GE(stats.rows, k_many * k_blocks - 30) << "a block has 29";
    uint64_t came = 0;
    for (uint64_t chain = 0; chain < k_many; ++chain) {
      const LoadOutcome out = load(*store, chain_request(chain, k_blocks, 256));
      for (uint32_t i = 0; i < out.blocks.size(); ++i) {
        EXPECT_TRUE(same_content(out.blocks[i].record, make_block(chain, i, 256)));
      }
      EXPECT_NE(out.summary.stopped, Miss::corrupt);
      came += out.blocks.size();
    }
    EXPECT_GT(came, k_many * k_blocks * 8 / 10);
    expect_serving(*store);
  }
}

/// The first block, the one in the middle, where a bisection looks first, and the last.
TEST_F(Salvage, BadBlocksOfTheIndexFarFromEachOtherCostTheirRowsOnly) {
  constexpr uint64_t k_many = 200;
  {
    auto store = open();
    for (uint64_t chain = 0; chain < k_many; ++chain) {
      store->put(chain_blocks(chain, k_blocks, 256), {.pin = chain % 10 == 0});
    }
    store->drain();
  }
  open();  // replays the log into tables
  std::vector<std::pair<BlockId, Row>> rows;
  const auto keep = [&](const BlockId& id, const Row& row) { rows.emplace_back(id, row); };
  ASSERT_TRUE(open_database().database->each_row(keep, [](std::string_view) {}));
  const auto middle = std::find_if(rows.begin(), rows.end(),
                                   [](const auto& entry) { return entry.first[0] >= 0x80; });
  ASSERT_NE(middle, rows.end());
  for (const auto& [id, row] : {rows.front(), *middle, rows.back()}) {
    const auto [path, at] = find(encode_row(id, row));
    ASSERT_FALSE(path.empty());
    std::string content = read_file(path);
    content[at] = static_cast<char>(content[at] ^ 1);
    write_file(path, content);
  }
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
  EXPECT_LT(store->stats().rows, k_many * k_blocks);
  EXPECT_GE(store->stats().rows, k_many * k_blocks - 3 * 30) << "a block has 29";
}

TEST_F(Salvage, WhatIsNoFileInThePlaceOfOneIsDamageLikeAnyOther) {
  fill_tables();
  const std::string others = directory_.path() + "/others";
  std::vector<fs::path> replaced = files();
  for (const char* ours : {".writable", ".salvaging", "SALVAGING", "OPENING"}) {
    replaced.emplace_back(fs::path(db_path()) / ours);
  }
  for (const fs::path& path : replaced) {
    std::vector<Lies> kinds = {Lies::full_directory, Lies::pipe, Lies::link};
    if (!path.has_extension()) {  // each more costs a salvage
      kinds.insert(kinds.end(), {Lies::directory, Lies::dangling, Lies::to_itself});
    }
    for (const Lies what : kinds) {
      SCOPED_TRACE(path.filename().string() + ", " + std::to_string(static_cast<int>(what)));
      restore();
      write_file(others, "another's");
      lay(path, what, others);
      const auto look = inspect(store_path(), {});
      ASSERT_FALSE(look);
      EXPECT_THAT(look.error().message, HasSubstr(path.filename().string() + " is not a file"));
      auto store = open();
      EXPECT_EQ(read_file(others), "another's");
      const ColdStats stats = store->stats();
      EXPECT_EQ(stats.outage, Outage::none) << stats.outage_text;
      const uint32_t came = load_all(*store);
      if (path.extension() != ".sst") {
        EXPECT_EQ(came, k_chains * k_blocks);
      }
      EXPECT_EQ(came == 0, stats.counters.quarantined == 1) << "the index was in that table";
      if (path.filename() != ".writable") {
        EXPECT_EQ(stats.counters.salvaged + stats.counters.quarantined, 1u);
        EXPECT_EQ(stats.outage_text, path.filename().string() + " is not a file");
      }
      expect_serving(*store);
      store.reset();
      EXPECT_EQ(open()->stats().counters.salvaged, 0u) << "once";
    }
  }
}

TEST_F(Salvage, OthersDirectoriesAreLeftAlone) {
  fill_tables();
  fs::create_directories(db_path() + "/backup/000001.sst");
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 0u) << store->stats().outage_text;
  EXPECT_EQ(load_all(*store), k_chains * k_blocks);
  EXPECT_TRUE(fs::exists(db_path() + "/backup/000001.sst"));
}

TEST_F(Salvage, ABadBlockOfPinnedRecordsCostsItsRecordOnly) {
  fill_tables();
  const Block block = make_block(k_chains - 1, 2);
  const auto [path, at] = find(std::span(block.tensors[1].bytes).first(64));
  ASSERT_FALSE(path.empty());
  std::string content = read_file(path);
  content[at] = static_cast<char>(content[at] ^ 1);
  write_file(path, content);
  fs::remove(db_path() + "/CURRENT");
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
  EXPECT_EQ(store->stats().rows, k_chains * k_blocks - 1);
  EXPECT_EQ(load_all(*store), (k_chains - 1) * k_blocks + 2);
}

TEST_F(Salvage, ABadBlockOfPayloadCostsItsRecordOnly) {
  fill_tables();
  for (const bool more_is_damaged : {false, true}) {
    restore();
    for (const uint32_t bad : {5u, 2u}) {
      const Block block = make_block(1, bad);
      const auto [path, at] = find(std::span(block.tensors[1].bytes).first(64));
      ASSERT_FALSE(path.empty());
      std::string content = read_file(path);
      content[at] = static_cast<char>(content[at] ^ 1);
      write_file(path, content);
      if (!more_is_damaged) break;
    }
    fs::remove(db_path() + "/CURRENT");
    {
      const auto store = open();
      const uint32_t lost = more_is_damaged ? 2 : 1;
      EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
      EXPECT_EQ(store->stats().counters.removed[Removal::corrupt], lost);
      EXPECT_EQ(store->stats().rows, k_chains * k_blocks - lost);
      EXPECT_EQ(load_all(*store), (k_chains - 1) * k_blocks + (more_is_damaged ? 2 : 5));
      expect_serving(*store);
    }
    const auto report = inspect(store_path(), {.verify = true});
    EXPECT_EQ(report->missing_records + report->corrupt_records + report->orphans, 0u);
    EXPECT_EQ(open()->stats().counters.salvaged, 0u) << "once";
  }
}

TEST_F(Salvage, ATableInAnothersPlaceCostsThatOne) {
  fill_tables();
  const auto table_of = [&](uint64_t chain) {
    return find(std::span(make_block(chain, 2).tensors[1].bytes).first(64)).first;
  };
  for (const bool up : {true, false}) {
    restore();
    fs::copy_file(table_of(up ? 0 : 1), table_of(up ? 1 : 0), fs::copy_options::overwrite_existing);
    auto store = open();
    EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
    EXPECT_EQ(load_all(*store), (k_chains - 1) * k_blocks);
    expect_serving(*store);
  }
}

TEST_F(Salvage, TablesThatChangedPlacesAreNamed) {
  fill_tables();
  const auto table_of = [&](uint64_t chain) {
    return find(std::span(make_block(chain, 2).tensors[1].bytes).first(64)).first;
  };
  const auto name = [](const fs::path& path) { return path.filename().string(); };
  const fs::path one = table_of(0), other = table_of(1);
  fs::rename(one, one.string() + ".away");
  fs::rename(other, one);
  fs::rename(one.string() + ".away", other);
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 1u);
  EXPECT_THAT(store->stats().outage_text,
              AnyOf(HasSubstr(name(one) + ", is what was " + name(other)),
                    HasSubstr(name(other) + ", is what was " + name(one))));
  EXPECT_EQ(load_all(*store), k_chains * k_blocks);
}

/// What a kill -9 leaves is what the files are at that moment.
TEST_F(Salvage, OneThatWasKilledIsBegunAgainButNotForEver) {
  damage_for_long();
  const std::string killed = directory_.path() + "/killed";
  {
    ColdStore store(small_options(store_path()), surroundings(clock_));
    wait_for_salvage();
    fs::create_directories(database_directory(killed));
    for (const auto& file : fs::directory_iterator(db_path())) {
      const fs::path to = database_directory(killed) / file.path().filename();
      std::error_code gone;  // lists of tables, into lost/
      if (file.is_regular_file()) fs::copy_file(file.path(), to, gone);
    }
    release();
  }
  fs::remove_all(store_path());
  fs::copy(killed, store_path(), fs::copy_options::recursive);
  const auto look = inspect(store_path(), {});
  ASSERT_FALSE(look);
  EXPECT_THAT(look.error().message, HasSubstr("did not come to its end"));
  {
    auto again = open();
    EXPECT_EQ(again->stats().counters.salvaged, 1u) << again->stats().outage_text;
    EXPECT_EQ(load_all(*again), k_chains * k_blocks);
    EXPECT_FALSE(Database::salvage_was_cut_off(db_path()));
  }
  fs::remove_all(store_path());
  fs::copy(killed, store_path(), fs::copy_options::recursive);
  EXPECT_EQ(Database::salvage_tries(db_path()), 1u);
  write_file(db_path() + "/SALVAGING", "3");
  EXPECT_THAT(inspect(store_path(), {}).error().message,
              HasSubstr("A server that starts on it moves it aside and begins empty; what can be "
                        "read is kept, before that, by\n  outrider inspect kv " +
                        store_path() + " --repair"));
  auto store = open();
  EXPECT_EQ(store->stats().counters.quarantined, 1u) << "it might die of it each time";
  EXPECT_EQ(store->stats().counters.salvaged, 0u);
  EXPECT_EQ(load_all(*store), 0u);
  expect_serving(*store);
  store.reset();

  fs::remove_all(store_path());
  fs::copy(killed, store_path(), fs::copy_options::recursive);
  const auto repaired = inspect(store_path(), {.repair = true});
  ASSERT_TRUE(repaired) << repaired.error().message;
  EXPECT_EQ(repaired->good_records, k_chains * k_blocks) << "a person may";
}

TEST_F(Salvage, WhatWouldTakeMinutesIsMovedAside) {
  fill_tables();
  fs::remove(db_path() + "/CURRENT");
  write_file(db_path() + "/009999.sst", "");
  fs::resize_file(db_path() + "/009999.sst", uint64_t{33} << 30);  // without a block on the disk
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 0u);
  EXPECT_EQ(store->stats().counters.quarantined, 1u);
  expect_serving(*store);
}

}  // namespace
}  // namespace outrider::kvstore
