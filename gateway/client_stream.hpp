#pragma once

#include <kj/async-io.h>

#include <string>

namespace outrider::gateway {

/// A client's socket below KJ's HTTP server, which tells nobody which version the client speaks:
/// notes it from the connection's first line. KJ thread.
class ClientStream final : public kj::AsyncIoStream {
 public:
  explicit ClientStream(kj::Own<kj::AsyncIoStream> socket) : socket_(kj::mv(socket)) {}

  /// The first request line ended in HTTP/1.0: no chunks, and one request per connection.
  bool is_http_1_0() const { return is_http_1_0_; }

  kj::Promise<size_t> tryRead(void* buffer, size_t bytes_min, size_t bytes_max) override;
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

 private:
  void note(std::string_view bytes);

  kj::Own<kj::AsyncIoStream> socket_;
  std::string line_end_;  ///< The last bytes of the first line as far as it has come.
  bool line_ended_ = false;
  bool is_http_1_0_ = false;
};

}  // namespace outrider::gateway
