#include "gateway/listener.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>

#include "base/limits.hpp"
#include "gateway/descriptor_limit.test.hpp"
#include "gateway/descriptors.hpp"

namespace outrider::gateway {
namespace {

TEST(Listener, AcceptsAgainAfterTheDescriptorsRanOut) {
  auto io = kj::setupAsyncIo();
  ServingMetrics metrics("test");
  std::ostringstream lines;
  auto log = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines));
  auto port = io.provider->getNetwork().parseAddress("127.0.0.1", 0).wait(io.waitScope)->listen();
  uint32_t served = 0;
  int keepalive = 0;
  Listener listener({kj::mv(port), io.provider->getTimer(), metrics, log, 8},
                    [&](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
                      ++served;
                      kj::uint size = sizeof(keepalive);
                      stream->getsockopt(SOL_SOCKET, SO_KEEPALIVE, &keepalive, &size);
                      return kj::Promise<void>(kj::NEVER_DONE).attach(kj::mv(stream));
                    });
  auto address =
      io.provider->getNetwork().parseAddress("127.0.0.1", listener.port()).wait(io.waitScope);
  const auto turn = [&] {
    io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(io.waitScope);
  };
  kj::Own<kj::AsyncIoStream> client;
  {
    // The next free descriptor is the client's; there is none for the server's end.
    const int next = ::dup(0);
    ASSERT_GE(next, 0);
    ::close(next);
    const DescriptorLimit limit(static_cast<rlim_t>(next) + 1);
    client = address->connect().wait(io.waitScope);
    while (lines.str().find("accept failed") == std::string::npos) turn();
    EXPECT_EQ(served, 0u);
  }
  while (served == 0) turn();
  EXPECT_EQ(served, 1u);
  EXPECT_EQ(keepalive, 1) << "a client that vanished is noticed";
  auto second = address->connect().wait(io.waitScope);
  while (served < 2) turn();
}

TEST(Descriptors, ConnectionsGetWhatIsLeftOfThem) {
  const uint64_t own = limits::descriptors_reserved;
  EXPECT_EQ(affordable_connections(4096, 2, 1'000'000), 4096u);
  EXPECT_EQ(affordable_connections(4096, 2, own + 100), 50u);
  EXPECT_EQ(affordable_connections(4096, 1, own + 100), 100u);
  EXPECT_EQ(affordable_connections(4096, 2, 3), 1u);
}

TEST(Descriptors, TheSoftLimitIsRaisedToTheHardOne) {
  const DescriptorLimit low(64);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(raise_descriptor_limit(), limit.rlim_max);
}

}  // namespace
}  // namespace outrider::gateway
