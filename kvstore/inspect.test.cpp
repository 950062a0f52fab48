#include "kvstore/inspect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.hpp"
#include "kvstore/faults.test.hpp"
#include "kvstore/salvage_mark.hpp"

namespace outrider::kvstore {
namespace {

using namespace testing_support;  // NOLINT: this folder's own helpers
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(Faults, InspectCountsVerifiesAndRepairs) {
  fill();
  auto report = inspect(store_path(), {.verify = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->records, k_chains * k_blocks);
  EXPECT_EQ(report->good_records, k_chains * k_blocks);
  EXPECT_EQ(report->pinned_records, k_blocks);
  EXPECT_TRUE(report->clean_shutdown);
  ASSERT_EQ(report->namespaces.size(), 1u);
  EXPECT_EQ(report->namespaces[0].ns, to_hex(k_test_ns));
  EXPECT_EQ(report->namespaces[0].tokens, k_chains * k_blocks * 16);
  ASSERT_EQ(report->tenants.size(), 1u);
  EXPECT_EQ(report->tenants[0].tenant, "");

  const Block block = make_block(1, 2);
  const auto [path, at] = find(std::span(block.tensors[1].bytes).first(64));
  std::string content = read_file(path);
  content[at] = static_cast<char>(content[at] ^ 1);
  write_file(path, content);
  report = inspect(store_path(), {.verify = true});
  EXPECT_EQ(report->corrupt_records, 1u);
  ASSERT_EQ(report->bad_records.size(), 1u);
  EXPECT_EQ(report->bad_records[0].id, to_hex(block.id));
  EXPECT_EQ(report->bad_records[0].ns, to_hex(k_test_ns));
  EXPECT_EQ(report->bad_records[0].tenant, "");
  EXPECT_EQ(report->bad_records[0].depth, 2u);
  EXPECT_THAT(report->bad_records[0].reason, StartsWith("corrupt: "));
  EXPECT_EQ(report->dropped, 0u);
  report = inspect(store_path(), {.repair = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->dropped, 1u);
  EXPECT_EQ(report->records, k_chains * k_blocks - 1) << "of what is left";
  EXPECT_EQ(report->corrupt_records, 0u);
  report = inspect(store_path(), {.verify = true});
  EXPECT_EQ(report->corrupt_records, 0u);
  EXPECT_EQ(report->records, k_chains * k_blocks - 1);

  fs::remove(db_path() + "/CURRENT");
  EXPECT_FALSE(inspect(store_path(), {}));
  EXPECT_FALSE(inspect(directory_.path() + "/nothing", {.repair = true}));
  EXPECT_FALSE(inspect(std::string(5000, 'x'), {})) << "a name that the system refuses";
}

TEST_F(Faults, AVerificationNamesWhatDoesNotHold) {
  {
    auto store = open();
    store->put(chain_blocks(1, 2), {.tenant = "ann"});
  }
  const auto add_missing = [&](uint32_t first, uint32_t count) {
    auto opened = open_database();
    Row row{.ns = short_of(k_test_ns), .tenant = tenant_number("ann")};
    row.sequence = opened.database->payload_files()->next_sequence;
    RowBatch batch;
    for (row.depth = first; row.depth < first + count; ++row.depth) {
      batch.put_row(block_id(9, row.depth), row);
    }
    const auto orphan = std::make_shared<std::vector<std::byte>>(*encode(make_block(8, 5)));
    batch.put_pinned(block_id(8, 5), RecordBytes(orphan, *orphan));
    ASSERT_TRUE(opened.database->write(batch));
  };
  add_missing(7, 1);
  auto report = inspect(store_path(), {.verify = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->good_records, 2u);
  ASSERT_EQ(report->bad_records.size(), 2u);
  const BadRecord& missing = report->bad_records[0];
  EXPECT_EQ(missing.id, to_hex(block_id(9, 7)));
  EXPECT_EQ(missing.ns, to_hex(k_test_ns));
  EXPECT_EQ(missing.tenant, "ann");
  EXPECT_EQ(missing.depth, 7u);
  EXPECT_THAT(missing.reason, StartsWith("missing: "));
  const BadRecord& orphan = report->bad_records[1];
  EXPECT_EQ(orphan.id, to_hex(block_id(8, 5)));
  EXPECT_EQ(orphan.ns, to_hex(k_test_ns));
  EXPECT_FALSE(orphan.tenant) << "records do not know";
  EXPECT_EQ(orphan.depth, 5u);
  EXPECT_THAT(orphan.reason, StartsWith("orphan: "));
  add_missing(8, k_bad_records_shown);
  report = inspect(store_path(), {.verify = true});
  EXPECT_EQ(report->missing_records, k_bad_records_shown + 1);
  EXPECT_EQ(report->bad_records.size(), k_bad_records_shown);
}

TEST_F(Faults, ARepairKeepsWhatOneLostTableLeaves) {
  fill();
  open();  // replays the log into tables
  const auto golden = directory_.path() + "/golden";
  fs::rename(store_path(), golden);
  fs::copy(golden, store_path(), fs::copy_options::recursive);
  const fs::path lost = find(std::span(make_block(1, 2).tensors[1].bytes).first(64)).first;
  ASSERT_FALSE(lost.empty());
  fs::remove(lost);
  const auto report = inspect(store_path(), {.verify = true});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::corrupt);
  EXPECT_THAT(report.error().message,
              AllOf(HasSubstr("a table, " + lost.filename().string() + ", is lost"),
                    HasSubstr("outrider inspect kv " + store_path() + " --repair\nDetail: ")));
  const auto repaired = inspect(store_path(), {.repair = true});
  ASSERT_TRUE(repaired) << repaired.error().message;
  EXPECT_TRUE(repaired->salvaged);
  EXPECT_EQ(repaired->dropped, k_blocks) << "the chain of the lost table";
  EXPECT_EQ(repaired->records, (k_chains - 1) * k_blocks) << "of what is left";
  EXPECT_EQ(repaired->good_records, repaired->records);
  EXPECT_EQ(repaired->missing_records + repaired->aged_rows + repaired->orphans, 0u);
  auto store = open();
  EXPECT_EQ(store->stats().counters.quarantined, 0u);
  EXPECT_EQ(load_all(*store), (k_chains - 1) * k_blocks);
  expect_serving(*store);
}

/// Each file of a store, lost or full of nonsense: a repair leaves a store that opens and is sound.
TEST_F(Faults, ARepairOfAnyLostFileLeavesASoundStore) {
  fill();
  const auto golden = directory_.path() + "/golden";
  fs::rename(store_path(), golden);
  fs::copy(golden, store_path(), fs::copy_options::recursive);
  for (const fs::path& path : files()) {
    for (const bool lost : {true, false}) {
      SCOPED_TRACE(path.filename().string() + (lost ? " lost" : " nonsense"));
      fs::remove_all(store_path());
      fs::copy(golden, store_path(), fs::copy_options::recursive);
      if (lost) {
        fs::remove(path);
      } else {
        write_file(path, "nonsense");
      }
      const auto repaired = inspect(store_path(), {.repair = true});
      ASSERT_TRUE(repaired) << repaired.error().message;
      const auto after = inspect(store_path(), {.verify = true});
      ASSERT_TRUE(after) << after.error().message;
      EXPECT_EQ(after->records, repaired->records);
      EXPECT_EQ(after->good_records, after->records);
      EXPECT_EQ(after->broken_rows + after->orphans, 0u);
      const bool holds_records = path.extension() == ".sst" || path.extension() == ".log";
      if (!holds_records) {
        EXPECT_EQ(after->records, k_chains * k_blocks) << "all is there";
      }
      auto store = open();
      EXPECT_EQ(store->stats().counters.quarantined, 0u) << store->stats().outage_text;
      EXPECT_EQ(load_all(*store), after->records);
      expect_serving(*store);
    }
  }
}

TEST_F(Faults, ARepairLeavesAloneWhatAnotherProcessOpens) {
  fill();
  {
    const auto opening = DirectoryLock::take(store_path());
    ASSERT_TRUE(opening);
    EXPECT_EQ(inspect(store_path(), {.repair = true}).error().code, ErrorCode::unavailable);
    EXPECT_EQ(inspect(store_path(), {.unpin = true}).error().code, ErrorCode::unavailable);
    EXPECT_TRUE(inspect(store_path(), {.verify = true})) << "a look changes nothing";
  }
  EXPECT_TRUE(inspect(store_path(), {.repair = true}));
}

TEST_F(Faults, AfterAChangeTheLastStopIsWhatItWas) {
  fill();
  for (const InspectOptions what :
       {InspectOptions{.repair = true}, InspectOptions{.unpin = true}}) {
    const auto report = inspect(store_path(), what);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->clean_shutdown);
    EXPECT_EQ(open()->stats().counters.unclean_starts, 0u);
  }
  auto store = open();
  keep();  // what a kill -9 leaves is what the files are at this moment
  store.reset();
  restore();
  const auto report = inspect(store_path(), {.repair = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_FALSE(report->clean_shutdown);
  EXPECT_EQ(open()->stats().counters.unclean_starts, 1u);
}

TEST_F(Faults, ARepairWritesLostMarksAnew) {
  fill();
  const std::string before = inspect(store_path(), {})->store_uuid;
  {
    auto opened = open_database();
    const auto marks = opened.database->marks("");
    ASSERT_TRUE(marks);
    for (const auto& [name, value] : *marks) ASSERT_TRUE(opened.database->delete_mark(name));
  }
  const auto report = inspect(store_path(), {.repair = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->marks_renewed);
  EXPECT_EQ(report->format, k_format);
  EXPECT_EQ(report->store_uuid.size(), before.size());
  EXPECT_EQ(report->records, k_chains * k_blocks);
  ASSERT_EQ(report->namespaces.size(), 1u);
  EXPECT_EQ(report->namespaces[0].ns, to_hex(k_test_ns)) << "from the records";
  ASSERT_EQ(report->tenants.size(), 1u);
  EXPECT_EQ(report->tenants[0].tenant, "");
  EXPECT_FALSE(inspect(store_path(), {.repair = true})->marks_renewed) << "once";
}

TEST_F(Faults, WhatWasMovedAsideCanBeLookedAtAndNoMore) {
  fill();
  fs::rename(db_path(), quarantine_directory(store_path()));
  const std::string aside = quarantine_directory(store_path());
  const auto report = inspect(aside, {.verify = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->good_records, k_chains * k_blocks);
  const auto repaired = inspect(aside, {.repair = true});
  ASSERT_FALSE(repaired);
  EXPECT_THAT(repaired.error().message, HasSubstr("move it to NEW/db"));

  fs::remove(aside + "/CURRENT");
  const auto damaged = inspect(aside, {});
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message,
              AllOf(HasSubstr("move it to NEW/db, and then\n  outrider inspect kv NEW --repair"),
                    Not(HasSubstr("server"))));
  const std::string anew = directory_.path() + "/new";
  fs::create_directories(anew);
  fs::rename(aside, database_directory(anew));
  EXPECT_EQ(inspect(anew, {.repair = true})->good_records, k_chains * k_blocks) << "as it said";
}

TEST_F(Faults, UnpinningADirectoryMakesItsRecordsOrdinary) {
  fill();
  constexpr uint32_t k_large = 5;
  constexpr size_t k_bytes = 64 << 10;
  auto filled = open();
  filled->put(chain_blocks(50, k_large, k_bytes), {.tenant = "large", .pin = true});
  filled.reset();
  const uint64_t before = inspect(store_path(), {})->disk_bytes;
  const auto report = inspect(store_path(), {.unpin = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->unpinned, k_blocks + k_large);
  EXPECT_EQ(report->pinned_records, 0u);
  EXPECT_EQ(report->records, k_chains * k_blocks + k_large);
  EXPECT_LT(report->disk_bytes, before + k_large * k_bytes / 2) << "no second copy stays";
  auto store = open();
  EXPECT_EQ(store->stats().pinned_bytes, 0u);
  EXPECT_EQ(load_all(*store), k_chains * k_blocks);
}

TEST_F(Faults, TheLogTellsOfOpeningsQuarantinesAndLostRecords) {
  Surroundings outside = surroundings(clock_);
  outside.log = *make_logger({});
  fill();
  for (uint32_t i = 1; i < 3; ++i) {
    const auto [path, at] = find(std::span(make_block(i, 2).tensors[1].bytes).first(64));
    std::string content = read_file(path);
    content[at] = static_cast<char>(content[at] ^ 1);
    write_file(path, content);
  }
  {
    ::testing::internal::CaptureStderr();
    ColdStore store(small_options(store_path()), outside);
    store.drain();
    load_all(store);
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(lines, HasSubstr("KV store is open"));
    EXPECT_THAT(lines, HasSubstr("records=24"));
    EXPECT_THAT(lines, AllOf(HasSubstr("tenants=1"), HasSubstr("last_stop=clean")));
    EXPECT_THAT(lines, HasSubstr("is corrupt and was dropped (0 more"));
    EXPECT_EQ(store.stats().counters.removed[Removal::corrupt], 2u);
    EXPECT_EQ(lines.find("was dropped"), lines.rfind("was dropped")) << lines;
  }
  ASSERT_TRUE(open_database().database->set_mark(k_format_mark, "another"));
  ::testing::internal::CaptureStderr();
  ColdStore store(small_options(store_path()), outside);
  store.drain();
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("moved to " + quarantine_directory(store_path())));
  EXPECT_THAT(lines, HasSubstr("last_stop=none"));
  EXPECT_FALSE(store.stats().outage_text.empty()) << "operators are told why";
}

TEST_F(Faults, AServersDirectoryCanBeInspectedWhileItRuns) {
  fill();
  auto store = open();
  const auto report = inspect(store_path(), {.verify = true});
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->good_records, k_chains * k_blocks);
  EXPECT_FALSE(report->clean_shutdown);
  const auto in_use = inspect(store_path(), {.repair = true});
  ASSERT_FALSE(in_use);
  EXPECT_NE(in_use.error().message.find("in use by another process"), std::string::npos)
      << in_use.error().message;
}

TEST_F(Faults, InspectSaysWhatANamespaceIsOf) {
  {
    auto store = open();
    store->describe(k_test_ns, "a model q8_0");
    store->put(chain_blocks(1, 2), {});
    store->drain();
  }
  const auto report = inspect(store_path(), {});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->namespaces.size(), 1u);
  EXPECT_EQ(report->namespaces[0].ns, to_hex(k_test_ns));
  EXPECT_EQ(report->namespaces[0].about, "a model q8_0");
}

}  // namespace
}  // namespace outrider::kvstore
