// What a store does whose directory another program deletes or replaces while it is open.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/log.hpp"
#include "kvstore/faults.test.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::HasSubstr;

constexpr auto k_over = fs::copy_options::recursive | fs::copy_options::overwrite_existing;

class Deleted : public Faults {
 protected:
  /// With what it logs; `play` has it as long as it lives.
  std::string lines_of(const std::function<void(ColdStore&)>& play) {
    Surroundings outside = surroundings(clock_);
    outside.log = *make_logger({});
    ::testing::internal::CaptureStderr();
    {
      ColdStore store(small_options(store_path()), outside);
      store.put(chain_blocks(1, k_blocks), {.pin = true});
      store.drain();
      play(store);
    }
    return ::testing::internal::GetCapturedStderr();
  }
};

/// Pins go to a log that is open: no write fails.
TEST_F(Deleted, WhatComesNextIsStoredInANewOne) {
  fill();
  keep();
  const std::map<std::string, std::function<void()>> replacements = {
      {"deleted", [&] { fs::remove_all(store_path()); }},
      {"db deleted", [&] { fs::remove_all(db_path()); }},
      {"empty",
       [&] {
         fs::remove_all(db_path());
         fs::create_directory(db_path());
       }},
      {"its files deleted",
       [&] {
         for (const fs::path& file : files()) fs::remove(file);
       }},
      {"another one in its place", [&] { restore(); }},
      {"other files in the place of its own",
       [&] {
         for (const fs::path& file : files()) fs::remove(file);
         fs::copy(golden(), store_path(), k_over);
       }},
      {"others written over its own", [&] { fs::copy(golden(), store_path(), k_over); }}};
  for (const auto& [what, replace] : replacements) {
    SCOPED_TRACE(what);
    restore();
    const std::string lines = lines_of([&, &replace = replace](ColdStore& store) {
      replace();
      store.put(chain_blocks(92, k_blocks), {.pin = true});
      store.drain();
      EXPECT_EQ(store.stats().outage, Outage::none) << store.stats().outage_text;
      clock_.advance(std::chrono::milliseconds(small_options("").use_age_ms));
      store.drain();
      store.drain();  // it looks when the first one is done
      EXPECT_EQ(store.stats().outage, Outage::io_error);
      EXPECT_EQ(load(store, chain_request(92, k_blocks)).blocks.size(), k_blocks);
      clock_.advance(std::chrono::milliseconds(limits::kv_write_retry_ms));
      store.put(chain_blocks(93, k_blocks), {.pin = true});
      store.drain();
      EXPECT_EQ(store.stats().outage, Outage::none) << store.stats().outage_text;
    });
    EXPECT_THAT(lines, HasSubstr("another program deleted or replaced it"));
    const auto store = open();
    EXPECT_EQ(load(*store, chain_request(93, k_blocks)).blocks.size(), k_blocks);
    expect_serving(*store);
    // A log that is written over goes on behind that.
    if (what == "others written over its own") continue;
    EXPECT_EQ(store->match(k_test_ns, chain_ids(92, k_blocks)), 0u);
  }
}

TEST_F(Deleted, AStopTellsOfIt) {
  const std::string lines = lines_of([&](ColdStore&) { fs::remove_all(store_path()); });
  EXPECT_THAT(lines, HasSubstr("another program deleted or replaced it"));
  EXPECT_FALSE(fs::exists(store_path()));
}

}  // namespace
}  // namespace outrider::kvstore
