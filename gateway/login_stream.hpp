#pragma once

#include <memory>
#include <utility>

#include "base/limits.hpp"
#include "gateway/socket_stream.hpp"

namespace outrider::gateway {

/// A socket of which only `rpc_login_bytes_max` bytes are read before the client has logged in;
/// then the connection ends. What a client sends right behind its login, without waiting for the
/// answer, counts as sent after it. KJ thread.
class LoginStream final : public SocketStream {
 public:
  LoginStream(kj::Own<kj::AsyncIoStream> socket, std::shared_ptr<const bool> logged_in)
      : SocketStream(kj::mv(socket)), logged_in_(std::move(logged_in)) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t bytes_min, size_t bytes_max) override;

 private:
  std::shared_ptr<const bool> logged_in_;
  size_t bytes_left_ = limits::rpc_login_bytes_max;
};

}  // namespace outrider::gateway
