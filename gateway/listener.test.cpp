#include "gateway/listener.hpp"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <utility>

#include "base/limits.hpp"
#include "gateway/descriptor_limit.test.hpp"
#include "gateway/descriptors.hpp"

namespace outrider::gateway {
namespace {

TEST(Listener, ServesEachConnectionAndNoticesVanishedClients) {
  auto io = kj::setupAsyncIo();
  ServingMetrics metrics("test");
  auto port = io.provider->getNetwork().parseAddress("127.0.0.1", 0).wait(io.waitScope)->listen();
  uint32_t served = 0;
  int keepalive = 0;
  Listener listener({kj::mv(port), io.provider->getTimer(), metrics, spdlog::default_logger(), 8},
                    [&](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
                      ++served;
                      kj::uint size = sizeof(keepalive);
                      stream->getsockopt(SOL_SOCKET, SO_KEEPALIVE, &keepalive, &size);
                      return kj::Promise<void>(kj::NEVER_DONE).attach(kj::mv(stream));
                    });
  auto address =
      io.provider->getNetwork().parseAddress("127.0.0.1", listener.port()).wait(io.waitScope);
  for (const uint32_t count : {1, 2}) {
    const auto client = address->connect().wait(io.waitScope);
    while (served < count) {
      io.provider->getTimer().afterDelay(1 * kj::MILLISECONDS).wait(io.waitScope);
    }
    EXPECT_EQ(std::exchange(keepalive, 0), 1);
  }
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
