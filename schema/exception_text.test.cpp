#include "schema/exception_text.hpp"

#include <gtest/gtest.h>
#include <kj/debug.h>

#include <cerrno>

namespace outrider::schema {
namespace {

std::string reason(const char* description) {
  return reason_of(
      kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::heapString(description)));
}

TEST(ReasonOf, KeepsTheReasonAndDropsTheCallAndItsArguments) {
  EXPECT_EQ(
      reason("::bind(sockfd, &addr.generic, addrlen): Address already in use; toString() = x"),
      "Address already in use");
  EXPECT_EQ(reason("DNS lookup failed.; host = nowhere"), "DNS lookup failed.");
  EXPECT_EQ(reason("plain words"), "plain words");
}

TEST(ReasonOf, KnowsHowKjWritesAFailedSystemCall) {
  const auto exception = kj::runCatchingExceptions([] {
    const int socket_number = 7;
    KJ_FAIL_SYSCALL("::bind(a, b)", EADDRINUSE, socket_number);
  });
  KJ_IF_MAYBE (thrown, exception) {
    EXPECT_EQ(reason_of(*thrown), "Address already in use");
  } else {
    FAIL();
  }
}

}  // namespace
}  // namespace outrider::schema
