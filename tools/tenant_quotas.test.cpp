#include "tools/tenant_quotas.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(TenantQuotas, AreMegabytesByName) {
  EXPECT_TRUE(parse_tenant_quotas("")->empty());
  EXPECT_THAT(*parse_tenant_quotas("ann=512"), ElementsAre(Pair("ann", 512u)));
  EXPECT_THAT(*parse_tenant_quotas(" bob = 1, a=b=16777216 "),
              ElementsAre(Pair("a=b", 16'777'216u), Pair("bob", 1u)));
}

TEST(TenantQuotas, RefuseWhatIsNoneAndSayWhichEntry) {
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"ann", "\"ann\" is not NAME=MiB"},
           {"=5", "\"=5\" is not NAME=MiB"},
           {"ann=5,", "\"\" is not NAME=MiB"},
           {",ann=5", "\"\" is not NAME=MiB"},
           {std::string(257, 'x') + "=5", "is not NAME=MiB"},
           {"ann=5,bob=", "\"bob=\" does not end in"},
           {"ann=0", "\"ann=0\" does not end in"},
           {"ann=-1", "does not end in"},
           {"ann=1.5", "does not end in"},
           {"ann=16777217", "does not end in a whole number from 1 to 16777216 MiB"},
           {"ann=99999999999999999999", "does not end in"},
           {"ann=5,bob=6,ann=7", "\"ann\" has two quotas"}}) {
    const auto quotas = parse_tenant_quotas(text);
    ASSERT_FALSE(quotas.ok()) << text;
    EXPECT_THAT(quotas.error().message, HasSubstr(what)) << text;
  }
}

TEST(TenantQuotas, AreBounded) {
  std::string text;
  for (size_t i = 0; i < k_tenant_quotas_max; ++i) {
    text += (i == 0 ? "t" : ",t") + std::to_string(i) + "=1";
  }
  EXPECT_TRUE(parse_tenant_quotas(text).ok());
  EXPECT_FALSE(parse_tenant_quotas(text + ",more=1").ok());
}

}  // namespace
}  // namespace outrider::tools
