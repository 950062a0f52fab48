#include "cluster/endpoint.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/limits.hpp"

namespace outrider::cluster {
namespace {

/// Of CAF's wire format (BASP): a frame's head begins with its operation, and has the length of
/// what follows it in bytes 4 to 7, big-endian.
constexpr size_t k_greeting_head = 8;
constexpr uint8_t k_server_handshake = 0;

class Socket {
 public:
  explicit Socket(const addrinfo& address)
      : number_(::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         address.ai_protocol)) {}
  ~Socket() {
    if (number_ >= 0) ::close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// 0, or the system's error.
  int connect(const addrinfo& address, Duration timeout) const {
    if (number_ < 0) return errno;
    if (::connect(number_, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    pollfd wait{number_, POLLOUT, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
    const int ready = ::poll(&wait, 1, static_cast<int>(ms));
    if (ready < 0) return errno;
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(number_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }

  /// Whether the peer's first words are those of CAF's server side.
  bool is_greeted(Duration timeout) const {
    std::array<uint8_t, k_greeting_head> head{};
    pollfd wait{number_, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
    if (::poll(&wait, 1, static_cast<int>(ms)) <= 0) return false;
    // One segment: CAF writes it at once.
    if (::recv(number_, head.data(), head.size(), MSG_DONTWAIT) != k_greeting_head) return false;
    const uint32_t payload = uint32_t{head[4]} << 24 | uint32_t{head[5]} << 16 |
                             uint32_t{head[6]} << 8 | uint32_t{head[7]};
    return head[0] == k_server_handshake && payload <= limits::control_message_bytes_max;
  }

 private:
  int number_;
};

}  // namespace

Result<Endpoint> parse_endpoint(const std::string& text, const std::string& field) {
  const auto wrong = [&] {
    return fail(ErrorCode::invalid_argument, field + ": \"" + text + "\" is not HOST:PORT", field);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  Endpoint out;
  out.host = text.substr(0, colon);
  const bool bracketed = out.host.starts_with('[') && out.host.ends_with(']');
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (!bracketed && out.host.find(':') != std::string::npos) return wrong();
  if (out.host == "*") out.host.clear();
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + colon + 1, end, out.port);
  if (error != std::errc() || at != end) return wrong();
  return out;
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

Result<void> probe(const Endpoint& endpoint, Duration timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (failed != 0) {
    return fail(ErrorCode::unavailable, to_string(endpoint) + ": " + ::gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const Socket socket(*at);
    error = socket.connect(*at, timeout);
    if (error != 0) continue;
    if (socket.is_greeted(timeout)) return {};
    return fail(ErrorCode::unavailable,
                to_string(endpoint) + ": what listens there is no cluster port (serve --cluster)");
  }
  return fail(ErrorCode::unavailable, to_string(endpoint) + ": " + std::strerror(error));
}

}  // namespace outrider::cluster
