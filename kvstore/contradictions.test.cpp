// Directories whose files contradict each other in ways that end a process that goes through them,
// and files that RocksDB takes for its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/log.hpp"
#include "kvstore/directory_check.hpp"
#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"
#include "kvstore/table_check.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Contradictions : public Faults {
 protected:
  fs::path log() const {
    for (const fs::path& path : files()) {
      if (path.extension() == ".log") return path;
    }
    return {};
  }

  DatabaseOptions small_database() const {
    return {.payload_cap_bytes = uint64_t{1} << 30,
            .payload_buffer_bytes = 1 << 20,
            .pinned_buffer_bytes = 1 << 20,
            .direct_io = false};
  }
  Database::Opened open_at(const std::string& path) const {
    return Database::open(path, small_database());
  }
  static uint64_t rows_of(const Database& database) {
    uint64_t rows = 0;
    EXPECT_TRUE(
        database.each_row([&](const BlockId&, const Row&) { ++rows; }, [](std::string_view) {}));
    return rows;
  }
  /// Into the log, which nothing flushes.
  void write_pinned(uint64_t chain) {
    const Block block = make_block(chain, 0);
    RowBatch batch;
    const auto record = std::make_shared<std::vector<std::byte>>(*encode(block));
    batch.put_pinned(block.id, RecordBytes(record, *record));
    batch.put_row(block.id, Row{.place = Place::pinned});
    const auto opened = open_at(db_path());
    ASSERT_TRUE(opened.database) << opened.error.text();
    ASSERT_TRUE(opened.database->write(batch));
  }

  /// After a salvage the list of tables does not say what each must be.
  void salvage() {
    fs::remove(db_path() + "/CURRENT");
    EXPECT_EQ(open()->stats().counters.salvaged, 1u);
  }
};

TEST_F(Contradictions, ATableThatIsAnothersCopyIsLeftOut) {
  fill_tables();
  salvage();
  open();
  keep();
  const std::vector<fs::path> all = tables();
  for (size_t i = 0; i < all.size(); ++i) {
    for (const fs::path& to : {all[(i + 1) % all.size()], all[(i + all.size() - 1) % all.size()]}) {
      const fs::path& from = all[i];
      SCOPED_TRACE(from.filename().string() + " over " + to.filename().string());
      restore();
      fs::remove(to);
      fs::create_hard_link(from, to);
      const auto look = inspect(store_path(), {});
      ASSERT_FALSE(look);
      EXPECT_THAT(look.error().message, HasSubstr("is a copy of " + from.filename().string()));
      auto store = open();
      EXPECT_EQ(store->stats().outage, Outage::none) << store->stats().outage_text;
      EXPECT_EQ(load_all(*store), store->stats().rows);
      expect_serving(*store);
      store.reset();
      EXPECT_EQ(open()->stats().counters.salvaged, 0u) << "once";
    }
  }
}

/// Two servers that replayed the same log: their tables have the same writes, and no common origin.
/// RocksDB's repair refuses them, but not where compactions took their numbers from the writes.
TEST_F(Contradictions, TablesWithTheSameWritesAreToldApart) {
  for (const bool compacted : {false, true}) {
    SCOPED_TRACE(compacted);
    const std::string twin = directory_.path() + "/twin";
    fs::remove_all(store_path());
    fs::remove_all(twin);
    open();
    write_pinned(0);
    fs::copy(db_path(), twin, fs::copy_options::recursive);
    for (const std::string& path : {db_path(), twin}) {
      const auto opened = open_at(path);
      ASSERT_TRUE(opened.database) << opened.error.text();
      if (compacted) {
        ASSERT_TRUE(opened.database->compact_pinned());
      }
    }
    uint64_t number = 900;
    for (const auto& file : fs::directory_iterator(twin)) {
      if (file.path().extension() != ".sst") continue;
      fs::copy_file(file, db_path() + "/000" + std::to_string(++number) + ".sst");
    }
    fs::remove(db_path() + "/CURRENT");
    auto salvaged = Database::salvage(db_path(), small_database());
    ASSERT_TRUE(salvaged) << salvaged.error().message;
    EXPECT_EQ(rows_of(**salvaged), 1u);
    EXPECT_EQ((*salvaged)->pinned_ids()->size(), 1u);
    ASSERT_TRUE((*salvaged)->settle());
    salvaged->reset();
    const auto again = open_at(db_path());
    ASSERT_TRUE(again.database) << again.error.text();
    EXPECT_EQ(rows_of(*again.database), 1u);
    EXPECT_EQ(again.database->pinned_ids()->size(), 1u);
    EXPECT_GE(again.database->marks("")->size(), 2u) << "format and id";
  }
}

/// Who dies between is counted.
TEST_F(Contradictions, AnOpeningAndASalvageLastUntilTheContentWasRead) {
  bool marked = false;
  const std::function<uint64_t()> look = [&] {
    marked = fs::exists(db_path() + "/OPENING") || fs::exists(db_path() + "/SALVAGING");
    return uint64_t{1};
  };
  const auto open_and_look = [&](bool salvaged) {
    marked = false;
    const OpenedStore store = open_store(small_options(store_path()), {.random_bits = look});
    EXPECT_EQ(store.salvaged, salvaged) << store.outage_text;
    EXPECT_TRUE(marked);
    EXPECT_FALSE(fs::exists(db_path() + "/OPENING"));
    EXPECT_FALSE(fs::exists(db_path() + "/SALVAGING"));
  };
  open_and_look(false);
  fill_tables();
  for (const fs::path& table : tables()) {  // that of the marks is among them
    restore();
    fs::remove(table);
    fs::remove(db_path() + "/CURRENT");
    marked = false;
    open_store(small_options(store_path()), {.random_bits = look});
    if (marked) break;
  }
  EXPECT_TRUE(marked) << "without marks it gets new ones";
}

TEST_F(Contradictions, NamesThatRocksDbWouldTakeForItsOwnCostNothing) {
  fill_tables();
  const std::string log_number = std::to_string(std::stoull(log().stem().string()));
  const std::string table_number = std::to_string(std::stoull(tables().front().stem().string()));
  const std::vector<std::string> names = {"000000.log",        "0.sst",
                                          "0.dbtmp",           "4611686018427387904.log",
                                          "MANIFEST-0",        "18446744073709551614.sst",
                                          "OPTIONS-00000007",  "99999999999999999999999999.log",
                                          log_number + ".log", table_number + ".sst",
                                          "000901.ldb",        table_number + ".blob"};
  const fs::path golden_files = database_directory(golden());
  const fs::path a_log = golden_files / log().filename();
  const fs::path a_table = golden_files / tables().back().filename();
  for (const std::string& name : names) {
    for (const fs::path& content : {fs::path(), a_log, a_table}) {
      SCOPED_TRACE(name + " with the bytes of " + content.filename().string());
      restore();
      const fs::path stray = fs::path(db_path()) / name;
      content.empty() ? write_file(stray, "") : void(fs::copy_file(content, stray));
      const auto look = inspect(store_path(), {});
      ASSERT_FALSE(look);
      EXPECT_THAT(look.error().message, HasSubstr(name + " has a name"));
      auto store = open();
      EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
      EXPECT_EQ(load_all(*store), k_chains * k_blocks);
      expect_serving(*store);
      store.reset();
      EXPECT_THAT(in_the_way(db_path()), IsEmpty());
      EXPECT_EQ(open()->stats().counters.salvaged, 0u) << "once";
    }
  }
}

/// A kill leaves it where the database was being made.
TEST_F(Contradictions, TheFirstNameOfTheIdentityIsRocksDbsOwn) {
  fill_tables();
  write_file(db_path() + "/000000.dbtmp", "an identity");
  auto store = open();
  EXPECT_EQ(store->stats().counters.salvaged, 0u) << store->stats().outage_text;
  EXPECT_EQ(load_all(*store), k_chains * k_blocks);
}

TEST_F(Contradictions, AFileUnderAnotherFormOfItsNumberGetsItsNameBack) {
  fill_tables();
  for (const fs::path& path : files()) {
    if (path.extension() != ".sst" && path.extension() != ".log") continue;
    SCOPED_TRACE(path.filename().string());
    restore();
    const std::string number = std::to_string(std::stoull(path.stem().string()));
    fs::rename(path, path.parent_path() / (number + path.extension().string()));
    auto store = open();
    EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
  }
}

TEST_F(Contradictions, WhatHasTheNameOfASalvagesDirectoryIsNotInItsWay) {
  fill_tables();
  for (const bool link : {false, true}) {
    restore();
    const std::string others = directory_.path() + "/others";
    fs::create_directories(others);
    write_file(others + "/000001.sst", "another's");
    if (link) fs::create_symlink(others, db_path() + "/lost");
    if (!link) write_file(db_path() + "/lost", "");
    fs::remove(db_path() + "/CURRENT");
    auto store = open();
    EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
    EXPECT_EQ(read_file(others + "/000001.sst"), "another's");
  }
}

TEST_F(Contradictions, ADatabaseThatIsNoDirectoryIsMovedAside) {
  fs::create_directories(store_path());
  for (const bool pipe : {false, true}) {
    fs::remove_all(db_path());
    if (pipe) {
      ASSERT_EQ(mkfifo(db_path().c_str(), 0600), 0);
    }
    if (!pipe) write_file(db_path(), "not a directory");
    auto store = open();
    EXPECT_EQ(store->stats().counters.quarantined, 1u);
    EXPECT_EQ(store->stats().outage, Outage::none) << store->stats().outage_text;
    EXPECT_THAT(store->stats().outage_text, HasSubstr("db is not a directory"));
    EXPECT_TRUE(fs::exists(fs::symlink_status(quarantine_directory(store_path()) + "/db")));
    expect_serving(*store);
  }
}

/// It may be a disk that is not mounted yet.
TEST_F(Contradictions, ADatabaseBehindALinkThatLeadsNowhereIsWaitedFor) {
  fill_tables();
  const std::string disk = directory_.path() + "/disk";
  fs::rename(db_path(), disk + "-away");
  fs::create_symlink(disk, db_path());
  ColdStore store(small_options(store_path()), surroundings(clock_));
  store.drain();
  EXPECT_EQ(store.stats().outage, Outage::io_error);
  EXPECT_THAT(store.stats().outage_text, HasSubstr("leads nowhere"));
  EXPECT_TRUE(fs::is_symlink(db_path()));
  fs::rename(disk + "-away", disk);
  clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
  expect_serving(store);
  EXPECT_EQ(load_all(store), k_chains * k_blocks);
}

TEST_F(Contradictions, ADatabaseThatIsMovedAwayIsTold) {
  fill_tables();
  const std::string away = directory_.path() + "/away";
  Surroundings outside = surroundings(clock_);
  outside.log = *make_logger({});
  ColdStore store(small_options(store_path()), outside);
  store.drain();
  fs::rename(db_path(), away);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    clock_.advance(std::chrono::milliseconds(small_options("").use_age_ms));
    store.drain();  // looks when it is done
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("another program moved " + db_path() + " to " + away));
  EXPECT_EQ(lines.find("moved"), lines.rfind("moved")) << lines;
  expect_serving(store);
}

/// Nobody reads the block, until a compaction does.
TEST_F(Contradictions, ABadBlockUnderNoLivingRecordIsFoundAndRepaired) {
  fill_tables();
  const Block block = make_block(k_chains - 1, 2);
  {
    auto store = open();
    unpin(*store, chain_ids(k_chains - 1, k_blocks));
    store->drain();
  }
  const std::string wanted(reinterpret_cast<const char*>(block.tensors[1].bytes.data()), 64);
  fs::path pinned;
  for (const fs::path& path : tables()) {
    std::string content = read_file(path);
    const size_t at = content.find(wanted);
    if (at == std::string::npos || content.find("kvp") == std::string::npos) continue;
    content[at] = static_cast<char>(content[at] ^ 1);
    write_file(path, content);
    pinned = path;
  }
  ASSERT_FALSE(pinned.empty()) << "its record left the pinned family without its bytes";
  const auto look = inspect(store_path(), {.verify = true});
  ASSERT_TRUE(look) << look.error().message;
  EXPECT_THAT(look->bad_tables, ::testing::ElementsAre(pinned.filename().string()));
  const auto repaired = inspect(store_path(), {.repair = true});
  ASSERT_TRUE(repaired) << repaired.error().message;
  EXPECT_TRUE(repaired->salvaged);
  EXPECT_THAT(repaired->bad_tables, IsEmpty());
  EXPECT_EQ(repaired->good_records, k_chains * k_blocks);
  EXPECT_EQ(load_all(*open()), k_chains * k_blocks);
}

/// In every block of every table but the payload's: rows that go without a word would be the worst.
TEST_F(Contradictions, ABadByteInAnyTableOfRowsIsNoticedAndMended) {
  fill_tables();
  uint64_t seen = 0;
  for (const fs::path& path : tables()) {
    const std::string content = read_file(path);
    if (content.find("rocksdb.column.family.namekvf") != std::string::npos) continue;
    const fs::path name = path.filename();
    for (size_t at = 7; at < content.size() - 53; at += content.size() / 9 + 1) {
      SCOPED_TRACE(name.string() + " at " + std::to_string(at));
      restore();
      std::string damaged = content;
      damaged[at] = static_cast<char>(damaged[at] ^ 16);
      write_file(fs::path(db_path()) / name, damaged);
      const auto look = inspect(store_path(), {.verify = true});
      if (look && look->all_good()) continue;  // a byte between blocks
      ++seen;
      const auto repaired = inspect(store_path(), {.repair = true});
      ASSERT_TRUE(repaired) << repaired.error().message;
      EXPECT_TRUE(repaired->all_good());
      EXPECT_EQ(repaired->good_records, repaired->records);
      const auto store = open();
      EXPECT_EQ(store->stats().counters.salvaged, 0u);
      EXPECT_LE(load_all(*store), repaired->records) << "of a chain what is before the first gap";
    }
  }
  EXPECT_GT(seen, 15u);
}

TEST_F(Contradictions, ARepairOfAGoodDatabaseSalvagesNothing) {
  for (int i = 0; i < 6; ++i) {  // each leaves tables that a compaction is due of
    auto store = open();
    store->put(chain_blocks(100 + static_cast<uint64_t>(i), 2), {});
    store->drain();
  }
  for (int i = 0; i < 5; ++i) {
    const auto repaired = inspect(store_path(), {.repair = true});
    ASSERT_TRUE(repaired) << repaired.error().message;
    EXPECT_FALSE(repaired->salvaged);
    EXPECT_EQ(repaired->good_records, 12u);
  }
}

TEST_F(Contradictions, FilesThatAreMuchTooLargeAreNotRead) {
  fill_tables();
  uint32_t enlarged = 0;
  for (const fs::path& path : files()) {
    const std::string name = path.filename().string();
    if (name != "CURRENT" && name != "IDENTITY" && !name.starts_with("MANIFEST-")) continue;
    SCOPED_TRACE(name);
    restore();
    fs::resize_file(path, uint64_t{1} << 30);  // without a block on the disk
    auto store = open();
    EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
    ++enlarged;
  }
  EXPECT_EQ(enlarged, 3u);
}

}  // namespace
}  // namespace outrider::kvstore
