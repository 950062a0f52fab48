#include "tools/inspect_kv.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace outrider::tools {
namespace {

kvstore::InspectReport a_report() {
  kvstore::InspectReport report;
  report.directory = "data/kv";
  report.disk_bytes = 3'000'000;
  report.records = 5;
  report.format = report.store_uuid = "\x1b[1m";
  report.namespaces.push_back({"ab12", "tiny fp16", 5, 2'500'000, 80});
  report.namespaces.push_back({"\x1b]0;title\x07", "", 0, 0, 0});
  report.tenants.push_back({"", 2, 1'000'000});
  report.tenants.push_back({"evil\x1b[2J\xff", 3, 1'500'000});
  return report;
}

TEST(InspectKv, TextNamesThePublicTenantAndMovesNoCursor) {
  const std::string text = inspect_text(a_report());
  EXPECT_TRUE(text.starts_with("data/kv: 2.9 MiB on disk\n")) << "as the settings count: " << text;
  EXPECT_NE(text.find("(public)  2 records, 1.0 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("ab12  tiny fp16  5 records"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("verified"), std::string::npos) << "nothing was";
}

TEST(InspectKv, JsonHasWhatWasVerifiedOnlyIfItWas) {
  kvstore::InspectReport report = a_report();
  auto json = nlohmann::json::parse(inspect_json(report));
  EXPECT_EQ(json["records"], 5);
  EXPECT_EQ(json["namespaces"][0]["tokens"], 80);
  EXPECT_EQ(json["tenants"].size(), 2u);
  EXPECT_FALSE(json.contains("verified"));
  report.verified = true;
  report.corrupt_records = 2;
  json = nlohmann::json::parse(inspect_json(report));
  EXPECT_EQ(json["verified"]["corrupt"], 2);
}

TEST(InspectKv, NamesWhatDoesNotVerifyAndCountsTheRest) {
  kvstore::InspectReport report = a_report();
  report.verified = true;
  report.missing_records = 3;
  report.orphans = 1;
  report.bad_records.push_back({"0a0b", "ab12", "ev\x1bil", 7, "missing: there is no record"});
  report.bad_records.push_back({"0c0d", "", {}, {}, "orphan: a pinned record"});
  const std::string text = inspect_text(report);
  EXPECT_NE(text.find("  0a0b  namespace ab12, tenant ev?il, depth 7  missing: there is no record\n"
                      "  0c0d  namespace ?, tenant ?, depth ?  orphan: a pinned record\n"
                      "  and 2 more\n"),
            std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(inspect_json(report))["verified"];
  EXPECT_EQ(json["bad"].size(), 2u);
  EXPECT_EQ(json["bad"][0]["depth"], 7);
  EXPECT_EQ(json["bad"][0]["reason"], "missing: there is no record");
  EXPECT_TRUE(json["bad"][1]["tenant"].is_null());
  EXPECT_EQ(json["bad_not_shown"], 2);
}

TEST(InspectKv, ThatNothingCouldBeSavedIsSaidSo) {
  kvstore::InspectReport report = a_report();
  report.salvaged = true;
  EXPECT_NE(inspect_text(report).find("made anew from what could be read"), std::string::npos);
  EXPECT_EQ(inspect_text(report).find("nothing of it could be saved"), std::string::npos);
  EXPECT_NE(inspect_text(report).find("Lost: nobody knows how many records"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(inspect_json(report))["lost"].is_null());
  report.lost = 40;
  EXPECT_NE(inspect_text(report).find("Lost: 40 records."), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(inspect_json(report))["lost"], 40);
  report = {.directory = "data/kv"};
  for (const bool moved : {false, true}) {
    (moved ? report.moved_aside : report.salvaged) = true;
    const std::string text = inspect_text(report);
    EXPECT_NE(text.find("nothing of it could be saved"), std::string::npos) << text;
    EXPECT_EQ(text.find("made anew"), std::string::npos) << text;
    EXPECT_NE(text.find("no format and no id"), std::string::npos) << text;
    EXPECT_EQ(text.find("store ,"), std::string::npos) << text;
  }
}

TEST(InspectKv, TablesWithBadBlocksAreNamed) {
  kvstore::InspectReport report = a_report();
  report.verified = true;
  report.bad_tables = {"000036.sst"};
  EXPECT_NE(inspect_text(report).find("a table, 000036.sst, has a bad block"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(inspect_json(report))["verified"]["bad_tables"][0], "000036.sst");
}

TEST(InspectKv, ADirectoryThatWasMovedAsideIsSaidSo) {
  kvstore::InspectReport report = {.directory = "data/kv"};
  report.moved_aside = true;
  EXPECT_NE(inspect_text(report).find("quarantine/"), std::string::npos);
  report.quarantine_bytes = 1;
  EXPECT_NE(inspect_text(report).find("(inspect kv data/kv/quarantine)"), std::string::npos);
}

}  // namespace
}  // namespace outrider::tools
