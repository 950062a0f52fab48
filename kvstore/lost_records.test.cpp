// How many records a salvage says are lost, against what was stored and what is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/log.hpp"
#include "kvstore/faults.test.hpp"
#include "kvstore/inspect.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::HasSubstr;
using ::testing::Not;

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

  /// Of a name that each table has; the first of it are shared with another.
  static constexpr const char* k_in_properties = "session.identity";
  void spoil(const fs::path& path, size_t at) {
    std::string content = read_file(path);
    ASSERT_LT(at, content.size());
    content[at] = static_cast<char>(content[at] ^ 1);
    write_file(path, content);
  }
};

/// None: it says that nobody knows.
std::optional<uint64_t> lost_by(const std::string& lines) {
  static const std::regex line("records kept, (\\d+|nobody knows how many) lost");
  std::smatch found;
  EXPECT_TRUE(std::regex_search(lines, found, line)) << lines;
  if (found.empty() || found[1].str()[0] == 'n') return std::nullopt;
  return std::stoull(found[1]);
}

TEST_F(LostRecords, WhateverTableIsSpoiltOrLostTheyAreCounted) {
  const uint64_t all = fill_in_turns();
  ASSERT_EQ(all, (k_chains + 2) * k_blocks);
  keep();
  uint32_t counted = 0, uncounted = 0;
  for (const fs::path& path : tables()) {
    restore();
    const std::string content = read_file(path);
    const size_t properties = content.find(k_in_properties);
    ASSERT_NE(properties, std::string::npos);
    const std::map<std::string, std::function<void()>> damages = {
        {"lost", [&] { fs::remove(path); }},
        {"its properties", [&] { spoil(path, properties); }},
        {"its first block", [&] { spoil(path, 0); }},
        {"its end", [&] { fs::resize_file(path, content.size() - 1); }}};
    for (const auto& [what, damage] : damages) {
      SCOPED_TRACE(path.filename().string() + ": " + what);
      restore();
      damage();
      const Opened opened = open_and_listen();
      if (opened.stats.counters.salvaged == 0) continue;
      const uint64_t truth = all - opened.stats.rows;
      const auto lost = lost_by(opened.lines);
      if (lost) {
        ++counted;
        EXPECT_EQ(*lost, truth) << opened.lines;
        EXPECT_EQ(opened.stats.counters.removed[Removal::corrupt], truth);
      } else {
        ++uncounted;
        EXPECT_EQ(truth, 0u) << "only the marks' table has the count, and no rows";
      }
      EXPECT_THAT(opened.lines, HasSubstr("last_stop=clean"));
      EXPECT_EQ(opened.stats.counters.unclean_starts, 0u);

      restore();
      damage();
      const auto repaired = inspect(store_path(), {.repair = true});
      ASSERT_TRUE(repaired) << repaired.error().message;
      if (repaired->lost) {
        EXPECT_EQ(*repaired->lost, all - repaired->records);
      }
      EXPECT_EQ(open_and_listen().stats.rows, repaired->records);
    }
  }
  EXPECT_GE(counted, 12u);
  EXPECT_LT(uncounted, counted);
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
  fs::remove(db_path() + "/LOCK");
  fs::remove(db_path() + "/CURRENT");
  const Opened opened = open_and_listen();
  EXPECT_EQ(opened.stats.counters.salvaged, 1u);
  EXPECT_THAT(opened.lines, HasSubstr("last_stop=killed"));
  EXPECT_EQ(lost_by(opened.lines), 0u);
}

}  // namespace
}  // namespace outrider::kvstore
