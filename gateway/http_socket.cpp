#include "gateway/http_socket.hpp"

#include <algorithm>

namespace outrider::gateway {
namespace {

constexpr std::string_view k_http_1_0 = "HTTP/1.0";

}  // namespace

kj::Promise<size_t> HttpSocket::tryRead(void* buffer, size_t bytes_min, size_t bytes_max) {
  auto read = SocketStream::tryRead(buffer, bytes_min, bytes_max);
  if (line_ended_) return read;
  return read.then([this, buffer](size_t size) {
    note({static_cast<const char*>(buffer), size});
    return size;
  });
}

void HttpSocket::note(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  line_end_ += bytes.substr(0, end);
  if (end != bytes.npos) {
    line_ended_ = true;
    while (line_end_.ends_with('\r') || line_end_.ends_with(' ')) line_end_.pop_back();
    is_http_1_0_ = line_end_.ends_with(k_http_1_0);
  }
  constexpr size_t k_kept = 2 * k_http_1_0.size();  // and some blanks
  line_end_.erase(0, line_end_.size() - std::min(line_end_.size(), k_kept));
}

}  // namespace outrider::gateway
