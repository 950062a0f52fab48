#pragma once

#include <string>
#include <string_view>

#include "gateway/socket_stream.hpp"

namespace outrider::gateway {

/// A client's socket below KJ's HTTP server, which tells nobody which version the client speaks:
/// notes it from the connection's first line. KJ thread.
class HttpSocket final : public SocketStream {
 public:
  explicit HttpSocket(kj::Own<kj::AsyncIoStream> socket) : SocketStream(kj::mv(socket)) {}

  /// The first request line ended in HTTP/1.0: no chunks, and one request per connection.
  bool is_http_1_0() const { return is_http_1_0_; }

  kj::Promise<size_t> tryRead(void* buffer, size_t bytes_min, size_t bytes_max) override;

 private:
  void note(std::string_view bytes);

  std::string line_end_;  ///< The last bytes of the first line as far as it has come.
  bool line_ended_ = false;
  bool is_http_1_0_ = false;
};

}  // namespace outrider::gateway
