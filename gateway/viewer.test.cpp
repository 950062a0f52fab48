#include "gateway/viewer.hpp"

#include <gtest/gtest.h>

namespace outrider::gateway {
namespace {

constexpr char k_text[] =
    "# HELP bytes Of a {tenant=\"bob\"}.\n"
    "bytes{model_name=\"m,tenant=\\\"bob\\\"\"} 1\n"
    "bytes{tenant=\"ann\"} 2\n"
    "bytes{model_name=\"m\",tenant=\"bob\"} 3\n"
    "bytes{tenant=\"a\\\\n\\n\\\"\"} 4\n"
    "sum 5\n"
    "last{tenant=\"bob\"} 6";

TEST(Viewer, SeesItselfOrAll) {
  EXPECT_TRUE((Viewer{.sees_all = true}.sees("ann")));
  EXPECT_TRUE((Viewer{.tenant = "ann"}.sees("ann")));
  EXPECT_FALSE((Viewer{.tenant = "ann"}.sees("bob")));
  EXPECT_FALSE(Viewer{}.sees("ann"));
  EXPECT_FALSE(Viewer{}.sees(""));
}

TEST(Viewer, GetsNoMetricsOfOtherTenants) {
  EXPECT_EQ(visible_metrics(k_text, {.sees_all = true}), k_text);
  EXPECT_EQ(visible_metrics(k_text, {}),
            "# HELP bytes Of a {tenant=\"bob\"}.\n"
            "bytes{model_name=\"m,tenant=\\\"bob\\\"\"} 1\n"
            "sum 5\n");
  EXPECT_EQ(visible_metrics(k_text, {.tenant = "ann"}),
            "# HELP bytes Of a {tenant=\"bob\"}.\n"
            "bytes{model_name=\"m,tenant=\\\"bob\\\"\"} 1\n"
            "bytes{tenant=\"ann\"} 2\n"
            "sum 5\n");
  EXPECT_EQ(visible_metrics("bytes{tenant=\"a\\\\n\\n\\\"\"} 4\n", {.tenant = "a\\n\n\""}),
            "bytes{tenant=\"a\\\\n\\n\\\"\"} 4\n");
  EXPECT_EQ(visible_metrics("", {}), "");
}

}  // namespace
}  // namespace outrider::gateway
