#include "gateway/rpc_stream.hpp"

#include <kj/debug.h>

#include <algorithm>

namespace outrider::gateway {

kj::Promise<size_t> RpcStream::tryRead(void* buffer, size_t bytes_min, size_t bytes_max) {
  if (*logged_in_) return SocketStream::tryRead(buffer, bytes_min, bytes_max);
  if (bytes_left_ == 0) {
    // A login that has been read is done when nothing else is left to do.
    return kj::evalLast([this, buffer, bytes_min, bytes_max]() -> kj::Promise<size_t> {
      if (*logged_in_) return SocketStream::tryRead(buffer, bytes_min, bytes_max);
      return KJ_EXCEPTION(DISCONNECTED, "too much was sent before a login");
    });
  }
  const size_t part_max = std::min(bytes_max, bytes_left_);
  const size_t part_min = std::min(bytes_min, part_max);
  return SocketStream::tryRead(buffer, part_min, part_max)
      .then([this, buffer, bytes_min, bytes_max, part_min](size_t size) -> kj::Promise<size_t> {
        bytes_left_ -= size;
        if (size >= bytes_min || size < part_min) return size;  // all of it, or the end
        return tryRead(static_cast<char*>(buffer) + size, bytes_min - size, bytes_max - size)
            .then([size](size_t rest) { return size + rest; });
      });
}

kj::Promise<void> RpcStream::counted(kj::Promise<void> write) {
  ++writes_;
  return write.attach(kj::defer([this] {
    if (--writes_ == 0 && when_written_) when_written_->fulfill();
  }));
}

kj::Promise<void> RpcStream::end_writing() {
  // A write that waited for another begins in the turn after it.
  return kj::evalLast([this]() -> kj::Promise<void> {
    if (writes_ == 0) {
      shutdownWrite();
      return kj::READY_NOW;
    }
    auto written = kj::newPromiseAndFulfiller<void>();
    when_written_ = kj::mv(written.fulfiller);
    return written.promise.then([this] { return end_writing(); });
  });
}

}  // namespace outrider::gateway
