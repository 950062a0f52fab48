#include "gateway/trace_context.hpp"

#include <gtest/gtest.h>

#include <string>

namespace outrider::gateway {
namespace {

const std::string k_trace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string k_parent = "00f067aa0ba902b7";

TEST(TraceId, IsTheSecondPartOfAWellFormedHeader) {
  EXPECT_EQ(trace_id("00-" + k_trace + "-" + k_parent + "-01"), k_trace);
  EXPECT_EQ(trace_id("cc-" + k_trace + "-" + k_parent + "-01-what-comes-later"), k_trace);
}

TEST(TraceId, IsEmptyForWhatTheStandardForbids) {
  const std::string zeros(32, '0');
  for (const std::string& header : {
           std::string(),
           std::string("00"),
           "ff-" + k_trace + "-" + k_parent + "-01",
           "00-" + zeros + "-" + k_parent + "-01",
           "00-" + k_trace + "-" + zeros.substr(0, 16) + "-01",
           "00-" + k_trace + "-" + k_parent + "-01-more",
           "00-" + k_trace + "-" + k_parent + "-01 ",
           "cc-" + k_trace + "-" + k_parent + "-01.more",
           "cc-" + k_trace + "-" + k_parent + "-01-a\nb",
           "cc-" + k_trace + "-" + k_parent + "-01-" + std::string(200, 'a'),
           "00-" + k_trace + "-" + k_parent + "_01",
           "0g-" + k_trace + "-" + k_parent + "-01",
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + k_parent + "-01",
       }) {
    EXPECT_EQ(trace_id(header), "") << header;
  }
}

}  // namespace
}  // namespace outrider::gateway
