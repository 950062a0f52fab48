#pragma once

#include <kj/async-io.h>

namespace outrider::gateway {

/// A client's socket, passed through; what looks at the bytes derives from it. KJ thread.
class SocketStream : public kj::AsyncIoStream {
 public:
  explicit SocketStream(kj::Own<kj::AsyncIoStream> socket) : socket_(kj::mv(socket)) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t bytes_min, size_t bytes_max) override {
    return socket_->tryRead(buffer, bytes_min, bytes_max);
  }
  kj::Promise<void> write(const void* buffer, size_t size) override {
    return socket_->write(buffer, size);
  }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return socket_->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return socket_->whenWriteDisconnected(); }
  void shutdownWrite() override { socket_->shutdownWrite(); }
  void abortRead() override { socket_->abortRead(); }
  kj::Maybe<int> getFd() const override { return socket_->getFd(); }
  /// Cap'n Proto sizes its windows by the socket's send buffer.
  void getsockopt(int level, int option, void* value, kj::uint* length) override {
    socket_->getsockopt(level, option, value, length);
  }

 private:
  kj::Own<kj::AsyncIoStream> socket_;
};

}  // namespace outrider::gateway
