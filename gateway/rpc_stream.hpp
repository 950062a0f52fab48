#pragma once

#include <memory>
#include <utility>

#include "base/limits.hpp"
#include "gateway/socket_stream.hpp"

namespace outrider::gateway {

/// A socket of which only `rpc_login_bytes_max` bytes are read before the client has logged in;
/// then the connection ends. What a client sends right behind its login, without waiting for the
/// answer, counts as sent after it. KJ thread.
///
/// And its writing side can be ended behind all that is queued.
class RpcStream final : public SocketStream {
 public:
  RpcStream(kj::Own<kj::AsyncIoStream> socket, std::shared_ptr<const bool> logged_in)
      : SocketStream(kj::mv(socket)), logged_in_(std::move(logged_in)) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t bytes_min, size_t bytes_max) override;
  kj::Promise<void> write(const void* buffer, size_t size) override {
    return counted(SocketStream::write(buffer, size));
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return counted(SocketStream::write(pieces));
  }
  /// shutdownWrite(), after the writes that are under way and those that wait for them.
  kj::Promise<void> end_writing();

 private:
  kj::Promise<void> counted(kj::Promise<void> write);

  uint32_t writes_ = 0;
  kj::Own<kj::PromiseFulfiller<void>> when_written_;  ///< Null before end_writing().
  std::shared_ptr<const bool> logged_in_;
  size_t bytes_left_ = limits::rpc_login_bytes_max;
};

}  // namespace outrider::gateway
