#include "tools/settings_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Values = std::vector<std::pair<std::string, std::string>>;

Result<std::vector<std::string>> checked(const Values& values) {
  Settings settings;
  for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value, "flag")) << name;
  return check_together(settings);
}

TEST(SettingsTogether, AreGoodByDefault) {
  EXPECT_THAT(*checked({}), IsEmpty());
  EXPECT_THAT(*checked({{"max-batch-tokens", "16"}, {"decode-plan", "fixed"}}), IsEmpty());
  EXPECT_THAT(*checked({{"store-dir", "kv"}, {"store-cap-mb", "64"}, {"store-quota-mb", "64"}}),
              IsEmpty());
}

TEST(SettingsTogether, ANodeHasNoClientsOfItsOwn) {
  Settings settings;
  for (const auto& [name, value] : Values{{"join", "a:1"},
                                          {"roles", "target"},
                                          {"store-dir", "kv"},
                                          {"store-tenant-quota-mb", "ann=64"},
                                          {"spec", "draft"}}) {
    EXPECT_TRUE(settings.set(name, value, "flag")) << name;
  }
  EXPECT_THAT(*check_together(settings, Command::node), IsEmpty());
  const auto serving = check_together(settings, Command::serve);
  ASSERT_FALSE(serving.ok());
  EXPECT_EQ(serving.error().field, "roles");
  const auto local = check_together(settings, Command::local);
  ASSERT_FALSE(local.ok());
  EXPECT_THAT(local.error().message, HasSubstr("serve and nodes only"));
}

TEST(SettingsTogether, ANodeThatDraftsAnswersNobody) {
  Settings settings;
  for (const auto& [name, value] : Values{{"join", "a:1"},
                                          {"ctx", "512"},
                                          {"draft-rows", "3"},
                                          {"store-dir", "kv"},
                                          {"spec-k", "3"}}) {
    EXPECT_TRUE(settings.set(name, value, "flag")) << name;
  }
  EXPECT_THAT(
      *check_together(settings, Command::node),
      testing::UnorderedElementsAre(HasSubstr("store-dir has no effect in a node that drafts"),
                                    HasSubstr("spec-k has no effect in a node that drafts")));
}

TEST(SettingsTogether, AGatewayHasNoEngineOfItsOwn) {
  Settings settings;
  const auto set = [&](const char* name, const char* value) {
    EXPECT_TRUE(settings.set(name, value, "flag")) << name;
  };
  set("roles", "gateway");
  ASSERT_EQ(serving_command(settings), Command::gateway);
  const auto alone = check_together(settings, Command::gateway);
  ASSERT_FALSE(alone.ok());
  EXPECT_THAT(alone.error().message, HasSubstr("--cluster HOST:PORT"));
  set("cluster", "127.0.0.1:8090");
  EXPECT_THAT(*check_together(settings, Command::gateway), IsEmpty());
  set("threads", "2");
  set("store-dir", "kv");
  EXPECT_THAT(*check_together(settings, Command::gateway),
              testing::UnorderedElementsAre(HasSubstr("threads has no effect with roles gateway"),
                                            HasSubstr("store-dir has no effect")));
  set("ctx", "4096");
  set("kv-kind", "q8_0");
  EXPECT_EQ(check_together(settings, Command::gateway)->size(), 2u) << "its targets have to";
  set("kv-kind", "auto");
  EXPECT_THAT(*check_together(settings, Command::gateway),
              testing::Contains(HasSubstr("kv-kind has no effect with roles gateway")));
  EXPECT_FALSE(check_together(settings, Command::node).ok());
}

TEST(SettingsTogether, RefuseAQuotaOverTheCapAndNameIt) {
  for (const char* cap : {"64", "99"}) {
    for (const auto& [name, value] :
         Values{{"store-quota-mb", "100"}, {"store-tenant-quota-mb", "ann=1,bob=100"}}) {
      const auto refused = checked({{"store-dir", "kv"}, {"store-cap-mb", cap}, {name, value}});
      ASSERT_FALSE(refused.ok()) << name;
      EXPECT_EQ(refused.error().field, name);
      EXPECT_THAT(refused.error().message, HasSubstr(std::string("store-cap-mb, ") + cap));
    }
  }
}

TEST(SettingsTogether, ATargetThatJoinsHasNoDraftModelOfItsOwn) {
  Settings settings;
  for (const auto& [name, value] : Values{{"roles", "target"}, {"draft", "d.gguf"}}) {
    ASSERT_TRUE(settings.set(name, value, "flag").ok());
  }
  EXPECT_THAT(*check_together(settings, Command::node),
              ElementsAre(HasSubstr("draft has no effect in a target")));
}

TEST(SettingsTogether, ADraftModelNeedsADrafterAndTheOtherWayRound) {
  EXPECT_THAT(*checked({{"draft", "d.gguf"}, {"draft-threads", "2"}}), IsEmpty());
  EXPECT_THAT(*checked({{"draft", "d.gguf"}, {"spec", "draft"}}), IsEmpty());
  EXPECT_THAT(*checked({{"draft", "d.gguf"}, {"spec", "ngram"}}),
              ElementsAre("draft has no effect unless spec is auto or draft"));
  EXPECT_THAT(*checked({{"cluster", ":8090"}, {"spec", "ngram"}}),
              ElementsAre("cluster: draft models that join have no effect with spec ngram"));
  EXPECT_THAT(*checked({{"cluster", ":8090"}, {"spec", "draft"}}), IsEmpty());
  EXPECT_THAT(*checked({{"draft-kv-memory-mb", "9"}}),
              ElementsAre("draft-kv-memory-mb has no effect without draft"));
  const auto refused = checked({{"spec", "draft"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "spec");
  EXPECT_THAT(refused.error().message, HasSubstr("draft model"));
}

TEST(SettingsTogether, WarnOfWhatHasNoEffect) {
  EXPECT_THAT(*checked({{"cluster-nccl", "auto"}, {"cluster", ":8090"}, {"device", "cuda:1"}}),
              IsEmpty());
  EXPECT_THAT(
      *checked({{"cluster-nccl", "auto"}, {"cluster", ":8090"}}),
      ElementsAre("cluster-nccl has no effect without cluster, and unless device is a GPU"));
  EXPECT_THAT(*checked({{"cluster-secret-file", "secret"}}),
              ElementsAre("cluster-secret-file has no effect without store-dir or cluster"));
  EXPECT_THAT(*checked({{"cluster", ":8090"}, {"cluster-secret-file", "secret"}}), IsEmpty());
  EXPECT_THAT(*checked({{"cluster-tls-cert", "c.pem"}}),
              ElementsAre("cluster-tls-cert has no effect without cluster"));
  EXPECT_THAT(*checked({{"store-dir", "kv"}, {"cluster-secret-file", "secret"}}), IsEmpty());
  EXPECT_THAT(*checked({{"store-quota-mb", "5000"}}),
              ElementsAre("store-quota-mb has no effect without store-dir"));
  EXPECT_THAT(*checked({{"store-dir", "kv"},
                        {"api-key-file", "keys"},
                        {"store-cap-mb", "100"},
                        {"store-tenant-quota-mb", "ann=40,bob=35"}}),
              ElementsAre());
  EXPECT_THAT(*checked({{"store-dir", "kv"},
                        {"api-key-file", "keys"},
                        {"store-cap-mb", "100"},
                        {"store-tenant-quota-mb", "ann=40,bob=36"}}),
              ElementsAre(HasSubstr("76 MiB together are more than three quarters")));
  EXPECT_THAT(*checked({{"store-dir", "kv"}, {"store-tenant-quota-mb", "ann=64"}}),
              ElementsAre("store-tenant-quota-mb has no effect without api-key-file"));
  EXPECT_THAT(*checked({{"store-cap-mb", "64"}}),
              ElementsAre("store-cap-mb has no effect without store-dir"));
  EXPECT_THAT(*checked({{"plan-dir", "plans"}, {"kv-gate-nll", "1"}}),
              ElementsAre("kv-gate-nll has no effect unless kv-kind is auto",
                          "plan-dir has no effect unless kv-kind is auto"));
  EXPECT_THAT(*checked({{"kv-kind", "auto"}, {"plan-max-age-s", "5"}}),
              ElementsAre("plan-max-age-s has no effect without plan-dir or store-dir"));
  EXPECT_THAT(*checked({{"kv-kind", "auto"}, {"store-dir", "kv"}, {"plan-max-age-s", "5"}}),
              testing::IsEmpty());
  EXPECT_THAT(*checked({{"decode-chunks", "1,2,3"}}),
              ElementsAre("decode-chunks has no effect unless decode-plan is fixed"));
  EXPECT_THAT(
      *checked(
          {{"decode-plan", "fixed"}, {"decode-chunks", "1,2,300"}, {"max-batch-tokens", "256"}}),
      ElementsAre(HasSubstr("max-batch-tokens rows at most, 256")));
}

}  // namespace
}  // namespace outrider::tools
