#pragma once

#include <kj/compat/http.h>
#include <kj/timer.h>

#include <string>
#include <vector>

#include "gateway/error_reply.hpp"
#include "gateway/http_settings.hpp"

namespace outrider::gateway {

/// The headers that we read or write beside KJ's own.
struct HttpHeaderIds {
  explicit HttpHeaderIds(kj::HttpHeaderTable::Builder& builder);
  kj::HttpHeaderId authorization, request_id, traceparent, retry_after, allow, cache_control;
  kj::HttpHeaderTable& table;
};

/// What arrived with one request, copied: KJ's own views end with the first read of the body.
struct RequestHead {
  kj::HttpMethod method = kj::HttpMethod::GET;
  std::string path;        ///< Without the query.
  std::string request_id;  ///< The client's if it is printable and short, else "".
  std::string traceparent;
  std::string authorization;
  bool has_authorization = false;
  std::string content_type;
  size_t header_bytes = 0;
};
RequestHead read_head(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                      const HttpHeaderIds& ids);

/// The body as it should be sent, with the exchange's own headers.
struct Reply {
  int status = 200;
  std::string body;
  const char* content_type = "application/json";
  uint32_t retry_after_s = 0;
  const char* allow = nullptr;
};
Reply reply_of(const ErrorReply& error);

/// One client connection, as the request handlers see it: notices that the client has gone although
/// nothing is written, and that it takes no bytes.
class ClientConnection {
 public:
  ClientConnection(kj::AsyncIoStream& stream, kj::Timer& timer, const HttpSettings& settings);

  /// True once the client has closed its side.
  bool gone() const;
  kj::Timer& timer() { return timer_; }
  const HttpSettings& settings() const { return settings_; }

  /// The promise, or DISCONNECTED when the client has gone first.
  template <class T>
  kj::Promise<T> unless_gone(kj::Promise<T> promise) {
    return promise.exclusiveJoin(watch().then([]() -> kj::Promise<T> { KJ_UNREACHABLE; }));
  }
  /// A write, given up after the write timeout.
  kj::Promise<void> bounded(kj::Promise<void> write);

 private:
  /// Never resolves; throws DISCONNECTED when the client has gone.
  kj::Promise<void> watch();

  int fd_ = -1;
  kj::Timer& timer_;
  const HttpSettings& settings_;
};

/// The exchange's response headers: request id, traceparent, content type.
kj::HttpHeaders response_headers(const RequestHead& head, const HttpHeaderIds& ids,
                                 const Reply& reply);
kj::Promise<void> send_reply(kj::HttpService::Response& response, const RequestHead& head,
                             const HttpHeaderIds& ids, Reply reply, ClientConnection& connection);

/// The whole body, bounded in size (announced or not) and in time, of each part and in
/// all. Errors: too_large, deadline_exceeded (408).
kj::Promise<Result<std::string>> read_body(kj::AsyncInputStream& body,
                                           ClientConnection& connection);

}  // namespace outrider::gateway
