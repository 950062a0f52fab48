#include "tools/kv_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tools/engine_options.hpp"

namespace outrider::tools {
namespace {

using testing::HasSubstr;

class KvStore : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "outrider_kv_store";
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  Settings settings_;
};

TEST_F(KvStore, IsThereOnlyWhereADirectoryIsNamed) {
  auto options = store_options(settings_);
  ASSERT_TRUE(options.ok());
  EXPECT_FALSE(options->has_value());
  ASSERT_TRUE(settings_.set("store-dir", directory_, "flag"));
  ASSERT_TRUE(settings_.set("store-cap-mb", "100", "flag"));
  ASSERT_TRUE(settings_.set("store-quota-mb", "10", "flag"));
  ASSERT_TRUE(settings_.set("store-tenant-quota-mb", "ann=3,bob=4", "flag"));
  ASSERT_TRUE(settings_.set("store-write-mb-s", "1", "flag"));
  options = store_options(settings_);
  ASSERT_TRUE(options.ok() && options->has_value());
  EXPECT_EQ((*options)->directory, directory_);
  EXPECT_EQ((*options)->cap_bytes, 100u << 20);
  EXPECT_EQ((*options)->default_quota_bytes, 10u << 20);
  EXPECT_EQ((*options)->quota_bytes,
            (std::map<std::string, uint64_t>{{"ann", 3u << 20}, {"bob", 4u << 20}}));
  EXPECT_EQ((*options)->write_bytes_per_second, 1u << 20);
}

TEST_F(KvStore, NeedsPrefixCaching) {
  ASSERT_TRUE(settings_.set("store-dir", directory_, "flag"));
  ASSERT_TRUE(settings_.set("prefix-caching", "off", "flag"));
  const auto options = store_options(settings_);
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.error().field, "store-dir");
}

TEST_F(KvStore, KeepsASecretOfItsOwnThatOnlyItsOwnerReads) {
  ASSERT_TRUE(settings_.set("store-dir", directory_, "flag"));
  const auto first = cluster_secret(settings_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->size(), 64u);
  EXPECT_EQ(*cluster_secret(settings_), *first);
  struct stat status {};
  ASSERT_EQ(::stat((directory_ + "/cluster-secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1)
      << "no draft is left";
}

TEST_F(KvStore, WritesItsSecretAgainWhereTheDirectoryWasDeleted) {
  ASSERT_TRUE(settings_.set("store-dir", directory_, "flag"));
  const auto first = cluster_secret(settings_);
  ASSERT_TRUE(first.ok());
  kvstore::ColdStoreOptions store;
  store.directory = directory_;
  keep_own_secret(store, *first);
  std::filesystem::remove_all(directory_);
  std::filesystem::create_directories(directory_);
  store.restore();
  struct stat status {};
  ASSERT_EQ(::stat((directory_ + "/cluster-secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(*cluster_secret(settings_), *first);
  std::ofstream(directory_ + "/cluster-secret") << "another that is put there\n";
  store.restore();
  EXPECT_EQ(*cluster_secret(settings_), "another that is put there") << "is left alone";
}

TEST_F(KvStore, SaysWhyItsSecretCannotBeMade) {
  std::ofstream(directory_) << "a file";
  ASSERT_TRUE(settings_.set("store-dir", directory_, "flag"));
  const auto secret = cluster_secret(settings_);
  ASSERT_FALSE(secret.ok());
  EXPECT_EQ(secret.error().field, "store-dir");
  EXPECT_THAT(secret.error().message, HasSubstr(directory_));
}

TEST_F(KvStore, IsDescribedAndMeasuredByReason) {
  kvstore::ColdStats stats;
  stats.rows = 3;
  stats.counters.loads[kvstore::Miss::corrupt] = 2;
  stats.counters.skipped[kvstore::Skip::queue_full] = 5;
  stats.deleted_files = 3;
  stats.counters.salvaged = 2;
  stats.counters.quarantined = 1;
  stats.counters.refused_pins = 6;
  stats.counters.load_times[2] = 4;
  stats.counters.load_times.back() = 1;
  stats.counters.load_ns = 11'000'000'000;
  stats.counters.payload_written_bytes = 4096;
  const auto json = describe_store(stats, {.sees_all = true});
  EXPECT_EQ(json["blocks"], 3);
  EXPECT_EQ(json["loads"].dump(), R"({"corrupt":2})");
  EXPECT_EQ(json["payload_written_bytes"], 4096);
  EXPECT_EQ(json["salvaged"], 2);
  EXPECT_EQ(json["deleted_files"], 3);
  ServingMetrics metrics("tiny");
  EXPECT_THAT(metrics.render(), Not(HasSubstr("kv_store")));
  for (int i = 0; i < 2; ++i) update_store_metrics(stats, metrics.store());
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("outrider_kv_store_blocks{model_name=\"tiny\"} 3"));
  EXPECT_THAT(text, HasSubstr("outrider_kv_store_salvaged_total{model_name=\"tiny\"} 2"));
  EXPECT_THAT(text, HasSubstr("outrider_kv_store_quarantined_total{model_name=\"tiny\"} 1"));
  EXPECT_THAT(text, HasSubstr("outrider_kv_store_refused_pins_total{model_name=\"tiny\"} 6"));
  EXPECT_THAT(text, HasSubstr("kv_store_payload_written_bytes_total{model_name=\"tiny\"} 4096"));
  EXPECT_THAT(text,
              HasSubstr("outrider_kv_store_loads_total{model_name=\"tiny\",end=\"corrupt\"} 2"));
  const std::string loads = "outrider_kv_store_load_duration_seconds";
  EXPECT_THAT(text, HasSubstr(loads + "_bucket{model_name=\"tiny\",le=\"0.0025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(loads + "_bucket{model_name=\"tiny\",le=\"0.005\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(loads + "_bucket{model_name=\"tiny\",le=\"10\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(loads + "_count{model_name=\"tiny\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(loads + "_sum{model_name=\"tiny\"} 11\n"));
  EXPECT_THAT(text, HasSubstr("outages_total{model_name=\"tiny\",reason=\"no_space\"} 0"));
  EXPECT_THAT(text, Not(HasSubstr("reason=\"none\"")));
  EXPECT_THAT(
      text,
      HasSubstr(
          "outrider_kv_store_skipped_blocks_total{model_name=\"tiny\",reason=\"queue_full\"} 5"));
}

TEST_F(KvStore, TellsWhoSeesAllOfEachTenantThatHasBlocks) {
  kvstore::ColdStats stats;
  stats.tenants = {{.name = "ann", .rows = 2, .bytes = 20, .quota_bytes = 50, .over_quota = 7},
                   {.tenant = 0x2a, .rows = 1, .bytes = 5, .over_quota = 1},
                   {.tenant = 0x2b, .dead_bytes = 9}};
  stats.outage_text = "/srv/kv/db: Permission denied";
  const auto json = describe_store(stats, {.sees_all = true});
  EXPECT_EQ(json["tenants"].dump(),
            R"({"ann":{"quota_bytes":50,"blocks":2,"bytes":20,"pinned_bytes":0,)"
            R"("dead_bytes":0,"over_quota_blocks":7},)"
            R"("#2a":{"quota_bytes":0,"blocks":1,"bytes":5,"pinned_bytes":0,)"
            R"("dead_bytes":0,"over_quota_blocks":1}})");
  EXPECT_EQ(json["other_tenants"].dump(),
            R"({"tenants":1,"blocks":0,"bytes":0,"pinned_bytes":0,"dead_bytes":9,)"
            R"("over_quota_blocks":0})");
  stats.tenants[1].tenant = kvstore::tenant_number("bob");
  const auto of_bob = describe_store(stats, {.tenant = "bob"});
  EXPECT_EQ(of_bob["tenants"].dump(),
            R"({"bob":{"quota_bytes":0,"blocks":1,"bytes":5,"pinned_bytes":0,)"
            R"("dead_bytes":0,"over_quota_blocks":1}})");
  EXPECT_FALSE(of_bob.contains("other_tenants"));
  EXPECT_EQ(json["outage_text"], "/srv/kv/db: Permission denied");
  EXPECT_EQ(of_bob["outage_text"], "") << "paths are the operator's";
  EXPECT_TRUE(describe_store(stats, {})["tenants"].empty());
  ServingMetrics metrics("tiny");
  update_store_metrics(stats, metrics.store());
  const std::string text = metrics.render();
  EXPECT_THAT(text,
              HasSubstr("outrider_kv_store_tenant_bytes{model_name=\"tiny\",tenant=\"ann\"} 20"));
  EXPECT_THAT(text, Not(HasSubstr("tenant=\"bob\""))) << "names of keys are no closed set";
  EXPECT_THAT(text, HasSubstr("tenant_quota_bytes{model_name=\"tiny\",tenant=\"ann\"} 50"));
  EXPECT_THAT(text, HasSubstr("over_quota_blocks_total{model_name=\"tiny\",tenant=\"ann\"} 7"));
}

TEST_F(KvStore, NamesThoseWithMostBytesWhereThereAreManyTenants) {
  kvstore::ColdStats stats;
  for (uint64_t i = 1; i <= 1000; ++i)
    stats.tenants.push_back({.tenant = i, .rows = 1, .bytes = i});
  const auto json = describe_store(stats, {.sees_all = true});
  EXPECT_EQ(json["tenants"].size(), 256u);
  EXPECT_TRUE(json["tenants"].contains("#3e8")) << "1000";
  EXPECT_EQ(json["other_tenants"]["tenants"], 744u);
  EXPECT_EQ(json["other_tenants"]["bytes"], 744u * 745 / 2);
}

}  // namespace
}  // namespace outrider::tools
