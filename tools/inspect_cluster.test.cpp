#include "tools/inspect_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tools/canned_server.test.hpp"

namespace outrider::tools {
namespace {

using testing::HasSubstr;

constexpr char k_cluster[] =
    R"({"sessions_open":2,"members":[{"name":"target-0","role":"target","model":"tiny","context_tokens":)"
    R"(256,"silent_ms":40,"load":{"running":3,"waiting":1,"parked":0,"blocks_free":60,"blocks_total":)"
    R"(64,"queued_rows":12,"rows_per_s":812.4}}],"kv_store":{"outage":"none","outage_text":"",)"
    R"("blocks":7,"bytes":8123456}})";

/// What the command prints, and its exit code.
std::pair<std::string, int> run(const CannedServer::Reply& reply, bool json) {
  const CannedServer server({reply});
  CLI::App app;
  Action action;
  add_inspect_cluster(app, action);
  app.parse("cluster --url " + server.url() + (json ? " --json" : ""));
  testing::internal::CaptureStdout();
  const int code = action();
  return {testing::internal::GetCapturedStdout(), code};
}

TEST(InspectCluster, TellsPeopleInAFewLines) {
  const auto [text, code] = run({200, k_cluster}, false);
  EXPECT_EQ(code, k_exit_done);
  EXPECT_EQ(text,
            "sessions open: 2\n"
            "target-0  target of tiny, context 256 tokens, heard 40 ms ago\n"
            "  choices: 3 running, 1 waiting, 0 parked\n"
            "  KV blocks: 60 of 64 free; 12 rows queued, 812 rows/s\n"
            "KV store: open; 7 blocks, 8 MiB; files 0 MiB, 0 MiB to be written\n"
            "  since the start: 0 blocks loaded, 0 stored\n");
}

TEST(InspectCluster, TellsWhenTheListOfMembersIsCut) {
  const auto text = [](uint32_t targets) {
    return cluster_text({{"members", {{{"name", "a"}}, {{"name", "b"}}}},
                         {"members_by_role", {{"target", targets}, {"draft", 1}}}});
  };
  EXPECT_THAT(text(1), testing::Not(HasSubstr("not listed")));
  EXPECT_THAT(text(2), HasSubstr("not listed: some of 2 targets and 1 draft\n"));
}

TEST(InspectCluster, TellsOfTheStoreWhatItDoesAndForWhom) {
  const char* const store = R"({"kv_kind":"q8_0","kv_store":{"outage":"none",
      "outage_text":"it was\ncut short","blocks":7,"bytes":8123456,"file_bytes":9e6,
      "queued_bytes":2e6,"loaded_blocks":5,"stored_blocks":6,"loads":{"absent":2,"gated":1},
      "skipped":{},"removed":{"quota":3},"tenants":{"ann":{"quota_bytes":536870912,"blocks":4,
      "bytes":6e6,"pinned_bytes":1e6,"over_quota_blocks":9}},"other_tenants":{"tenants":2,
      "blocks":3,"bytes":2123456,"pinned_bytes":0,"over_quota_blocks":0}}})";
  EXPECT_EQ(cluster_text(nlohmann::json::parse(store)),
            "sessions open: 0\n"
            "KV kind: q8_0\n"
            "no members\n"
            "KV store: open; 7 blocks, 8 MiB; files 9 MiB, 2 MiB to be written\n"
            "  an earlier database was given up: it was cut short\n"
            "  since the start: 5 blocks loaded, 6 stored\n"
            "  loads by end: absent 2, gated 1\n"
            "  blocks removed: quota 3\n"
            "  tenant ann: 4 blocks, 6 MiB, 1 MiB of them pinned; quota 512 MiB, 9 blocks over it "
            "not stored\n"
            "  2 other tenants: 3 blocks, 2 MiB, 0 MiB of them pinned\n");
  const char* const keyless = R"({"kv_store":{"tenants":{"":{"blocks":1,"quota_bytes":0}}}})";
  EXPECT_THAT(cluster_text(nlohmann::json::parse(keyless)),
              HasSubstr("  tenant (public): 1 block, 0 MiB, 0 MiB of them pinned; no quota\n"));
  const char* const broken = R"({"kv_store":{"outage":"no_space","outage_text":"No space left"}})";
  EXPECT_THAT(
      cluster_text(nlohmann::json::parse(broken)),
      HasSubstr("KV store: out of order, no_space; 0 blocks, 0 MiB; files 0 MiB, 0 MiB to be "
                "written\n  No space left\n"));
}

TEST(InspectCluster, TellsWhoDraftsAndWhatBecameOfIt) {
  const char* const drafts = R"({"drafts":{"ngram":true,"model":"small","draft_tokens":922,
      "accepted_tokens":860,"accepted_tokens_per_pos":[500,360],"sources":{"own_text":{
      "draft_tokens":22,"accepted_tokens":10}},"hints":{"used":488,"late":2}}})";
  EXPECT_THAT(
      cluster_text(nlohmann::json::parse(drafts)),
      HasSubstr("drafts by texts and small: 860 of 922 tokens came true, by place 500, 360; "
                "own_text 10 of 22; hints: late 2, used 488\n"));
  EXPECT_THAT(cluster_text(nlohmann::json::parse(R"({"drafts":{"ngram":false,"model":null}})")),
              HasSubstr("drafts by nobody yet: 0 of 0 tokens came true\n"));
  EXPECT_THAT(
      cluster_text(nlohmann::json::parse(
          R"({"drafts":{"ngram":false,"model":null,"draft_tokens":9,"accepted_tokens":4}})")),
      HasSubstr("drafts by nobody any more: 4 of 9 tokens came true\n"));
  EXPECT_THAT(cluster_text(nlohmann::json::parse(
                  R"({"drafts":{"drafts":3,"draft_tokens":9,"accepted_tokens":4}})")),
              HasSubstr("drafts by what targets have: 4 of 9 tokens came true\n"));
  EXPECT_THAT(cluster_text(nlohmann::json::parse(
                  R"({"members":[{"load":{"draft_runs":1,"drafting":true}}]})")),
              HasSubstr("  draft models: for 1 choice; wanted now\n"));
  EXPECT_THAT(cluster_text(nlohmann::json::parse(R"({"drafts":null})")),
              testing::Not(HasSubstr("drafts")));
}

TEST(InspectCluster, TellsWhoWasNotLetIn) {
  EXPECT_THAT(cluster_text(nlohmann::json::parse(
                  R"({"gate":{"connected":2,"refused":{"secret":3,"protocol":1}}})")),
              HasSubstr("cluster port: 2 connected; refused: protocol 1, secret 3\n"));
  EXPECT_THAT(cluster_text(nlohmann::json::parse(R"({"gate":{"connected":0,"refused":{}}})")),
              HasSubstr("cluster port: 0 connected\n"));
}

TEST(InspectCluster, JsonIsWhatTheServerSaid) {
  const auto [text, code] = run({200, k_cluster}, true);
  EXPECT_EQ(code, k_exit_done);
  EXPECT_EQ(text, nlohmann::ordered_json::parse(k_cluster).dump(2) + "\n");
}

TEST(InspectCluster, AnErrorIsOneLineAndNoOutput) {
  const CannedServer::Reply refusals[] = {{401, R"({"error":{"message":"no\nkey"}})"},
                                          {502, "<html>\n<b>bad</b>\n</html>\n"},
                                          {200, "hello\nthere\n"}};
  const char* words[] = {"/cluster: HTTP 401 no key",
                         "/cluster: HTTP 502 <html> <b>bad</b> </html>",
                         "/cluster: HTTP 200 no JSON object: hello there"};
  for (size_t i = 0; i < 3; ++i) {
    for (const bool json : {false, true}) {
      testing::internal::CaptureStderr();
      const auto [text, code] = run(refusals[i], json);
      const std::string error = testing::internal::GetCapturedStderr();
      EXPECT_EQ(code, k_exit_failed);
      EXPECT_EQ(text, "");
      EXPECT_THAT(error, testing::AllOf(testing::StartsWith("outrider: http://"),
                                        testing::EndsWith(words[i] + std::string("\n"))));
      EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1);
    }
  }
}

TEST(InspectCluster, TakesItsKeyFromTheEnvironmentToo) {
  ASSERT_EQ(::setenv("OUTRIDER_API_KEY", "from outside", 1), 0);
  const auto key_of = [](const std::string& line) {
    CLI::App app;
    Action action;
    add_inspect_cluster(app, action);
    app.parse(line);
    return app.get_subcommand("cluster")->get_option("--api-key")->as<std::string>();
  };
  EXPECT_EQ(key_of("cluster"), "from outside");
  EXPECT_EQ(key_of("cluster --api-key named"), "named");
  ::unsetenv("OUTRIDER_API_KEY");
}

TEST(InspectCluster, TakesAnyJson) {
  for (const char* body :
       {"{}", "7", R"({"members":7})", R"({"members":[7,null,{"load":[]}]})",
        R"({"members":[{"name":"\u001b[2J\n"}],"kv_store":{"blocks":"x"}})",
        R"({"kv_store":{"loads":{"\u001b":1,"x":"y"},"tenants":{"\u001b":7}}})"}) {
    const std::string text = cluster_text(nlohmann::json::parse(body));
    EXPECT_THAT(text, HasSubstr("sessions open: 0")) << body;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}

}  // namespace
}  // namespace outrider::tools
