#include "tools/peer_lines.hpp"

#include <algorithm>
#include <utility>

#include "cluster/endpoint.hpp"
#include "link/tcp_link.hpp"

namespace outrider::tools {
namespace {

/// Queries one way, blocks the other.
constexpr uint32_t k_streams = 1;
/// Blocks that wait for their reader: several of the largest.
constexpr uint64_t k_window_bytes = 16 << 20;

Result<kj::AutoCloseFd> reach(cluster::Gate& gate, const std::string& address,
                              const actors::LineName& name) {
  cluster::LineToken token{};
  if (name.size() != token.size()) return fail(ErrorCode::invalid_argument, "no name of a line");
  std::copy(name.begin(), name.end(), token.begin());
  if (address.empty()) return gate.own_line(token);
  cluster::Endpoint endpoint;
  OUTRIDER_ASSIGN(endpoint, cluster::parse_endpoint(address, "join"));
  return gate.dial_line(endpoint, token);
}

}  // namespace

actors::PeerLines peer_lines(std::shared_ptr<cluster::Gate> gate,
                             std::shared_ptr<link::LinkCounters> counters) {
  const auto clock = std::make_shared<const SteadyClock>();
  const link::LinkSetup setup{.settings = {.streams = k_streams, .window_bytes = k_window_bytes},
                              .clock = clock,
                              .counters = std::move(counters)};
  const auto dial = [gate = std::move(gate), setup](
                        const std::string& address,
                        const actors::LineName& name) -> Result<std::unique_ptr<link::TensorLink>> {
    auto socket = reach(*gate, address, name);
    if (!socket) return socket.error();
    auto made = link::TcpLink::open(link::OwnedFd(socket->release()), setup);
    if (!made) return made.error();
    return std::unique_ptr<link::TensorLink>(std::move(*made));
  };
  const auto new_name = [] {
    const cluster::LineToken token = cluster::random_line_token();
    return actors::LineName(token.begin(), token.end());
  };
  return {.dial = dial,
          .new_name = new_name,
          .clock = clock,
          .nccl = {.nccl = {}, .setup = setup},
          .threads = actors::system_threads()};
}

}  // namespace outrider::tools
