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
  EXPECT_NE(text.find("(public)  2 records, 1.0 MB"), std::string::npos) << text;
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

TEST(InspectKv, ADirectoryThatWasMovedAsideIsSaidSo) {
  kvstore::InspectReport report = a_report();
  report.moved_aside = true;
  EXPECT_NE(inspect_text(report).find("quarantine/"), std::string::npos);
  report.quarantine_bytes = 1;
  EXPECT_NE(inspect_text(report).find("(inspect kv data/kv/quarantine)"), std::string::npos);
}

}  // namespace
}  // namespace outrider::tools
