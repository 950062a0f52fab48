// How many records a salvage says are lost, against what was stored and what is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "base/log.hpp"
#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::HasSubstr;

/// None: it says that nobody knows.
std::optional<uint64_t> lost_by(const std::string& lines) {
  static const std::regex line("records kept, (\\d+|nobody knows how many) lost");
  std::smatch found;
  EXPECT_TRUE(std::regex_search(lines, found, line)) << lines;
  if (found.empty() || found[1].str()[0] == 'n') return std::nullopt;
  return std::stoull(found[1]);
}

class LostRecords : public Faults {
 protected:
  /// Rows in several tables, some in more than one of them: each process adds some and uses others.
  /// Returns how many records there are.
  uint64_t fill_in_turns() {
    fill();
    for (uint64_t turn = 0; turn < 2; ++turn) {
      auto store = open();
      load(*store, chain_request(turn, k_blocks));
      store->put(chain_blocks(100 + turn, k_blocks), {});
      store->drain();
    }
    return open()->stats().rows;
  }

  struct Opened {
    std::string lines;
    ColdStats stats;
  };
  Opened open_and_listen() {
    Surroundings outside = surroundings(clock_);
    outside.log = *make_logger({});
    ::testing::internal::CaptureStderr();
    Opened out;
    {
      ColdStore store(small_options(store_path()), outside);
      store.drain();
      out.stats = store.stats();
    }
    out.lines = ::testing::internal::GetCapturedStderr();
    return out;
  }

  void spoil(const fs::path& path, size_t at) {
    std::string content = read_file(path);
    ASSERT_LT(at, content.size());
    content[at] = static_cast<char>(content[at] ^ 1);
    write_file(path, content);
  }

  /// Of what was kept, with so many records. Returns how often a count was given.
  uint32_t check_each_table(uint64_t all, const std::string& last_stop,
                            const std::set<std::string>& damages_made) {
    restore();
    uint32_t counts = 0, none = 0;
    for (const fs::path& path : tables()) {
      restore();
      const std::string content = read_file(path);
      const size_t properties = content.find("session.identity");  // of a name in each table's
      EXPECT_NE(properties, std::string::npos);
      const std::map<std::string, std::function<void()>> damages = {
          {"lost", [&] { fs::remove(path); }},
          {"its properties", [&] { spoil(path, properties); }},
          {"its first block", [&] { spoil(path, 0); }},
          {"its end", [&] { fs::resize_file(path, content.size() - 1); }}};
      for (const auto& [what, damage] : damages) {
        if (!damages_made.contains(what)) continue;
        SCOPED_TRACE(path.filename().string() + ": " + what);
        restore();
        damage();
        const Opened opened = open_and_listen();
        EXPECT_THAT(opened.lines, HasSubstr("last_stop=" + last_stop));
        EXPECT_EQ(opened.stats.counters.unclean_starts, last_stop == "killed" ? 1u : 0u);
        if (opened.stats.counters.salvaged == 0) continue;
        const uint64_t truth = all - opened.stats.rows;
        if (const auto lost = lost_by(opened.lines)) {
          ++counts;
          EXPECT_EQ(*lost, truth) << opened.lines;
          EXPECT_EQ(opened.stats.counters.removed[Removal::corrupt], truth);
        } else {
          ++none;
          EXPECT_EQ(truth, 0u) << "only the marks' table has the count, and no rows";
        }

        if (what != "lost") continue;  // each costs two more salvages
        restore();
        damage();
        const auto repaired = inspect(store_path(), {.repair = true});
        EXPECT_TRUE(repaired) << repaired.error().message;
        if (repaired && repaired->lost) {
          EXPECT_EQ(*repaired->lost, all - repaired->records);
        }
      }
    }
    EXPECT_LT(none, counts);
    return counts;
  }
};

TEST_F(LostRecords, WhateverTableIsSpoiltOrLostTheyAreCounted) {
  const uint64_t all = fill_in_turns();
  ASSERT_EQ(all, (k_chains + 2) * k_blocks);
  keep();
  EXPECT_GE(
      check_each_table(all, "clean", {"lost", "its properties", "its first block", "its end"}),
      12u);
}

/// The log has rows and pinned records, and marks of an earlier stop are in tables.
TEST_F(LostRecords, AfterAKillToo) {
  uint64_t all = fill_in_turns();
  for (uint64_t chain : {200, 201}) {
    auto store = open();
    store->put(chain_blocks(chain, k_blocks), {});
    store->put(chain_blocks(chain + 10, k_blocks), {.pin = true});
    store->drain();
    all += 2 * k_blocks;
    keep();  // what a kill -9 leaves is what the files are at this moment
    store.reset();
    restore();
  }
  EXPECT_GE(check_each_table(all, "killed", {"lost", "its properties"}), 6u);
}

/// It is written anew, and its row then names a later write than the one that counted.
TEST_F(LostRecords, APayloadTableWithABadBlockIsCounted) {
  const uint64_t all = fill_in_turns();
  const auto [path, at] = find(std::span(make_block(1, 5).tensors[1].bytes).first(64));
  spoil(path, at);
  fs::remove(db_path() + "/CURRENT");
  const Opened opened = open_and_listen();
  EXPECT_EQ(opened.stats.rows, all - 1);
  EXPECT_EQ(lost_by(opened.lines), 1u);
}

/// The count is lost with it, and the one before says less than there was.
TEST_F(LostRecords, WhereTheLogIsLostNobodyKnows) {
  fill_in_turns();
  {
    auto store = open();
    store->put(chain_blocks(200, k_blocks), {});
    store->drain();
    keep();
  }
  restore();
  for (const fs::path& path : files()) {
    if (path.extension() == ".log") fs::remove(path);
  }
  fs::remove(db_path() + "/CURRENT");
  EXPECT_EQ(lost_by(open_and_listen().lines), std::nullopt);
}

/// Of records that came after a kill: their payload, and any other table with it.
TEST_F(LostRecords, TwoTablesThatAreLostAreCountedOrNobodyKnows) {
  {
    auto store = open();
    store->put(chain_blocks(0, k_blocks), {.pin = true});
    store->drain();
    keep();  // what a kill -9 leaves is what the files are at this moment
  }
  restore();
  {
    auto store = open();
    store->put(chain_blocks(1, k_blocks), {});
    store->drain();
  }
  keep();
  const std::vector<fs::path> all = tables();
  ASSERT_GE(all.size(), 5u);
  uint32_t salvages = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      restore();
      fs::remove(all[i]);
      fs::remove(all[j]);
      const Opened opened = open_and_listen();
      if (opened.stats.counters.salvaged == 0) continue;  // or it is moved aside
      ++salvages;
      const auto lost = lost_by(opened.lines);
      if (lost) {
        EXPECT_EQ(*lost, 2 * k_blocks - opened.stats.rows) << all[i] << ' ' << all[j];
      }
    }
  }
  EXPECT_GT(salvages, 3u);
}

/// Such a list opens as the state that was, and RocksDB deletes the tables that came later.
TEST_F(LostRecords, ThoseOfAListThatIsCutBetweenItsRecordsAreNoneThatAgedOut) {
  const auto list = [&] {
    std::string name;
    std::getline(std::ifstream(db_path() + "/CURRENT"), name);
    return db_path() + '/' + name;
  };
  uint64_t before = 0;
  {
    const auto store = open();
    store->put(chain_blocks(1, k_blocks), {});
    store->drain();
    before = fs::file_size(list());
    store->put(chain_blocks(2, k_blocks), {});
    store->drain();
    keep();
  }
  restore();
  ASSERT_GT(fs::file_size(list()), before);
  fs::resize_file(list(), before);
  const auto store = open();
  EXPECT_EQ(load(*store, chain_request(1, k_blocks)).blocks.size(), k_blocks);
  const auto lost = load(*store, chain_request(2, k_blocks));
  EXPECT_EQ(lost.blocks.size(), 0u);
  EXPECT_EQ(lost.summary.stopped, Miss::corrupt);
  EXPECT_EQ(store->stats().counters.removed[Removal::aged_out], 0u);
  EXPECT_GT(store->stats().counters.removed[Removal::corrupt], 0u);
}

/// Of a MANIFEST cut there RocksDB opens what was before, and deletes the rest.
TEST_F(LostRecords, AListOfTablesThatEndsWithinARecordLosesNone) {
  const uint64_t all = fill_in_turns();
  keep();
  std::string name;
  std::getline(std::ifstream(db_path() + "/CURRENT"), name);
  const fs::path list = db_path() + '/' + name;
  const std::string content = read_file(list);
  std::vector<size_t> begins;  // of its records
  for (size_t at = 0; at + 7 <= content.size();) {
    begins.push_back(at);
    at += 7 + static_cast<uint8_t>(content[at + 4]) + 256 * static_cast<uint8_t>(content[at + 5]);
  }
  ASSERT_GE(begins.size(), 5u);
  for (const size_t named : {begins[1], begins[2], begins[3]}) {
    SCOPED_TRACE("before it names all families, at " + std::to_string(named));
    restore();
    fs::resize_file(list, named);
    const auto inspected = inspect(store_path(), {.repair = true});
    ASSERT_TRUE(inspected) << inspected.error().message;
    EXPECT_TRUE(inspected->salvaged);
    EXPECT_EQ(inspected->records, all);
    // Without a table it is one that was killed while it was made.
    restore();
    fs::resize_file(list, named);
    for (const fs::path& table : tables()) fs::remove(table);
    const auto made = inspect(store_path(), {.verify = true});
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr("it was being made"));
    EXPECT_EQ(open()->stats().counters.salvaged, 0u);
  }
  for (const size_t begin : {begins[1], begins[begins.size() / 2], begins.back()}) {
    const std::map<std::string, std::function<void()>> damages = {
        {"ends within a head", [&] { fs::resize_file(list, begin + 6); }},
        {"ends behind a head", [&] { fs::resize_file(list, begin + 7); }},
        {"ends within a record", [&] { fs::resize_file(list, begin + 9); }},
        {"a size that it has not", [&] {
           std::string other = content;
           other[begin + 5] = static_cast<char>(other[begin + 5] ^ 4);
           write_file(list, other);
         }}};
    for (const auto& [what, damage] : damages) {
      SCOPED_TRACE(what + " at " + std::to_string(begin));
      restore();
      damage();
      EXPECT_FALSE(inspect(store_path(), {.verify = true}));
      const Opened opened = open_and_listen();
      EXPECT_EQ(opened.stats.counters.salvaged, 1u);
      EXPECT_EQ(opened.stats.rows, all);
      EXPECT_EQ(lost_by(opened.lines), 0u);
      EXPECT_THAT(opened.lines, HasSubstr("last_stop=clean"));
    }
  }
}

/// The count of a salvage is the one that the next begins with.
TEST_F(LostRecords, WhatOneSalvageToldTheNextDoesNot) {
  const uint64_t all = fill_in_turns();
  const auto lose_table_of = [&](uint64_t chain) {
    const fs::path path = find(std::span(make_block(chain, 2).tensors[1].bytes).first(64)).first;
    ASSERT_FALSE(path.empty());
    fs::remove(path);
  };
  lose_table_of(0);
  const Opened first = open_and_listen();
  EXPECT_EQ(lost_by(first.lines), all - first.stats.rows);
  EXPECT_LT(first.stats.rows, all);
  lose_table_of(2);
  const Opened second = open_and_listen();
  EXPECT_EQ(lost_by(second.lines), first.stats.rows - second.stats.rows);
  EXPECT_LT(second.stats.rows, first.stats.rows);
}

TEST_F(LostRecords, AKillIsToldAsOneAfterASalvageToo) {
  fill_in_turns();
  {
    auto store = open();
    store->put(chain_blocks(200, k_blocks), {});
    store->drain();
    keep();  // what a kill -9 leaves is what the files are at this moment
  }
  restore();
  fs::remove(db_path() + "/CURRENT");
  const Opened opened = open_and_listen();
  EXPECT_EQ(opened.stats.counters.salvaged, 1u);
  EXPECT_THAT(opened.lines, HasSubstr("last_stop=killed"));
  EXPECT_EQ(lost_by(opened.lines), 0u);
}

}  // namespace
}  // namespace outrider::kvstore
