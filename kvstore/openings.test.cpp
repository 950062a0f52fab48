// Directories at which RocksDB would end the process, and those at which processes have died.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <thread>

#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"
#include "kvstore/table_check.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Openings : public Faults {
 protected:
  std::string mark() const { return db_path() + "/OPENING"; }

  static void flip(const fs::path& path, size_t byte, int bit) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(byte));
    const int was = file.get();
    file.seekp(static_cast<std::streamoff>(byte));
    file.put(static_cast<char>(was ^ (1 << bit)));
  }

  /// The first and last byte of a table's properties block, its trailer included: from before the
  /// three sizes of its first entry on, as far as a wrong bit makes it broken.
  std::pair<size_t, size_t> properties_of(const fs::path& table) const {
    const size_t first = read_file(table).find("rocksdb.block.based.table") - 3;
    const std::string alone = directory_.path() + "/alone";
    fs::remove_all(alone);
    fs::create_directories(alone);
    fs::copy(table, alone);
    size_t last = first;
    for (size_t at = first;; last = at++) {
      flip(alone / table.filename(), at, static_cast<int>(at % 8));
      if (damaged_tables(alone).empty()) return {first, last};
      flip(alone / table.filename(), at, static_cast<int>(at % 8));
    }
  }
};

TEST_F(Openings, EveryByteOfATablesPropertiesIsLookedAt) {
  fill_tables();
  EXPECT_THAT(damaged_tables(db_path()), IsEmpty());
  ASSERT_GE(tables().size(), 5u) << "of each family one";
  for (const fs::path& table : tables()) {
    const auto [first, last] = properties_of(table);
    const std::string content = read_file(table);
    ASSERT_GT(last - first, 500u);
    ASSERT_LT(last, content.size() - 53) << "before the footer";
    EXPECT_LT(last, content.find("rocksdb.properties")) << "and before what names it";
    flip(table, first, 0);
    EXPECT_THAT(damaged_tables(db_path()),
                ElementsAre(Field(&TableDamage::table, table.filename().string())));
    flip(table, first, 0);
  }
}

TEST_F(Openings, AWrongBitThereCostsATableAndNotTheProcess) {
  fill_tables();
  for (const fs::path& table : tables()) {
    restore();
    const auto [first, last] = properties_of(table);
    for (const size_t at : {last - 5, last - 8, last - 40, first}) {
      expect_harmless(table.filename().string() + " at " + std::to_string(at), [&, at = at] {
        flip(table, at, 7);
        const auto look = inspect(store_path(), {.verify = true});
        ASSERT_FALSE(look);
        EXPECT_THAT(look.error().message, HasSubstr(table.filename().string()));
      });
    }
  }
}

TEST_F(Openings, OneThatLastsIsMarkedAndOneThatEndedIsNot) {
  fill_tables();
  std::optional<HeldFile> identity(db_path() + "/IDENTITY");  // only RocksDB looks at it
  ColdStore store(small_options(store_path()), surroundings(clock_));
  while (read_file(mark()) != "1") std::this_thread::yield();
  identity.reset();
  EXPECT_TRUE(store.wait_open(std::chrono::hours(1)));
  EXPECT_FALSE(fs::exists(mark()));
}

TEST_F(Openings, AfterFiveThatDiedWhatCanBeReadIsKept) {
  fill_tables();
  write_file(mark(), "4");
  {
    auto store = open();
    EXPECT_EQ(store->stats().counters.salvaged, 0u) << "kills do that too";
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
    EXPECT_FALSE(fs::exists(mark()));
  }
  write_file(mark(), "5");
  EXPECT_THAT(inspect(store_path(), {}).error().message, HasSubstr("died of that"));
  {
    auto store = open();
    EXPECT_EQ(store->stats().counters.salvaged, 1u) << store->stats().outage_text;
    EXPECT_THAT(store->stats().outage_text, HasSubstr("the last 5 processes"));
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
    EXPECT_FALSE(fs::exists(mark()));
  }
  EXPECT_EQ(open()->stats().counters.salvaged, 0u);
}

TEST_F(Openings, AStoreThatIsPutInItsPlaceIsLeftAlone) {
  fill_tables();
  const std::string away = directory_.path() + "/away";
  auto store = open();
  fs::rename(store_path(), away);
  fs::copy(golden(), store_path(), fs::copy_options::recursive);
  const auto content = [&] {
    std::map<std::string, std::string> out;
    for (const fs::path& path : files()) out[path.filename().string()] = read_file(path);
    return out;
  };
  const auto before = content();
  store->put(chain_blocks(50, k_blocks), {.pin = true});
  store->put(chain_blocks(51, k_blocks), {});
  store->drain();
  EXPECT_EQ(load(*store, chain_request(51, k_blocks)).blocks.size(), k_blocks) << "where it went";
  store.reset();
  EXPECT_EQ(content(), before);
  EXPECT_EQ(load_all(*open()), k_chains * k_blocks);
  ColdStore moved(small_options(away), surroundings(clock_));
  moved.drain();
  EXPECT_EQ(load(moved, chain_request(50, k_blocks)).blocks.size(), k_blocks);
  EXPECT_EQ(moved.stats().counters.salvaged, 0u);
}

TEST_F(Openings, WithoutItsLockFileItHasOneOwnerAllTheSame) {
  fill_tables();
  auto store = open();
  for (const bool is_directory : {false, true}) {
    fs::remove(db_path() + "/LOCK");
    if (is_directory) fs::create_directory(db_path() + "/LOCK");
    ColdStore second(small_options(store_path()), surroundings(clock_));
    second.drain();
    EXPECT_EQ(second.stats().outage, Outage::in_use);
    EXPECT_THAT(second.stats().outage_text, HasSubstr("in use by another process"));
    EXPECT_EQ(load_all(second), 0u);
    EXPECT_EQ(load_all(*store), k_chains * k_blocks);
  }
}

}  // namespace
}  // namespace outrider::kvstore
